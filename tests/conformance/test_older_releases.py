"""What is planned for a release before 0.5.19 is what its own command-line parser takes. The resolution of those cannot be
asked: they have no seam to describe a GPU by."""

import json
import os
import subprocess
import sys

import pytest
from conformance.samples import samples
from conformance.test_resolution import planned

SEED = 519
PLANS_WANTED = 300

# Builds the release's own parser and feeds it one argument list a line. Older releases register model types that the
# installed Transformers has grown itself since; that alone is allowed here, and no model is loaded.
PARSE = """
import argparse, contextlib, io, json, sys
import transformers
register = transformers.AutoConfig.register
transformers.AutoConfig.register = staticmethod(lambda key, config, exist_ok=True: register(key, config, exist_ok=True))
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
for line in sys.stdin:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parser.parse_args(json.loads(line))
        print("", flush=True)
    except SystemExit:
        print(said.getvalue().strip().splitlines()[-1], flush=True)
"""


# Neither has this flag, so a complaint about it shows that the parser is the release's own.
LATER_FLAG = ["--model-path", "x", "--prefill-decode-interval", "22"]


@pytest.mark.parametrize("version", ["0.5.15.post1", "0.5.11"])
def test_the_release_s_own_parser_accepts_every_planned_argument(version, release_path):
    plans = [p for s in samples(SEED, 4 * PLANS_WANTED, version) if (p := planned(s)) is not None][:PLANS_WANTED]
    assert len(plans) == PLANS_WANTED
    *refused, complaint = _refusals([*(p.engine.args for p in plans), LATER_FLAG], release_path(version))
    wrong = [f"{why}: {' '.join(p.engine.args)}" for p, why in zip(plans, refused, strict=True) if why]
    assert not wrong, f"{len(wrong)} of {len(plans)}:\n" + "\n".join(wrong[:10])
    assert "unrecognized arguments: --prefill-decode-interval" in complaint


def _refusals(arguments: list[list[str]], path: str) -> list[str]:
    """The parser's complaint for each argument list; empty where it takes it."""
    environment = os.environ | {"PYTHONPATH": path, "SGLANG_PLUGINS": "none"}
    done = subprocess.run(
        [sys.executable, "-s", "-c", PARSE],
        input="\n".join(map(json.dumps, arguments)),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split("\n")[-len(arguments) - 1 : -1]
