"""What is planned for an older release is what its own command-line parser takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

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


@pytest.mark.parametrize("version", ["0.5.19", "0.5.15.post1", "0.5.12.post1"])
def test_the_release_s_own_parser_accepts_every_planned_argument(version, wheel, engine_site, tmp_path):
    with zipfile.ZipFile(wheel(version)) as archive:
        archive.extractall(tmp_path)
    plans = [p for s in samples(SEED, 4 * PLANS_WANTED, version) if (p := planned(s)) is not None][:PLANS_WANTED]
    assert len(plans) == PLANS_WANTED
    refused = _refusals([p.engine.args for p in plans], tmp_path, engine_site)
    wrong = [f"{why}: {' '.join(p.engine.args)}" for p, why in zip(plans, refused, strict=True) if why]
    assert not wrong, f"{len(wrong)} of {len(plans)}:\n" + "\n".join(wrong[:10])


def _refusals(arguments: list[list[str]], release: Path, engine_site: Path) -> list[str]:
    """The parser's complaint for each argument list; empty where it takes it."""
    environment = os.environ | {"PYTHONPATH": f"{release}:{engine_site}", "SGLANG_PLUGINS": "none"}
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


def test_a_flag_that_the_release_does_not_have_is_a_complaint(wheel, engine_site, tmp_path):
    with zipfile.ZipFile(wheel("0.5.12.post1")) as archive:
        archive.extractall(tmp_path)
    (complaint,) = _refusals([["--model-path", "x", "--prefill-decode-interval", "22"]], tmp_path, engine_site)
    assert "unrecognized arguments: --prefill-decode-interval" in complaint
