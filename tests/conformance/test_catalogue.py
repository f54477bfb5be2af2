"""The engine catalogue says what SGLang says: what is committed comes out of the published wheel, and the engine's own
command-line parser has the same flags."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from minicluster.paths import ENGINE
from vlm_operator.sglang.catalogue.generate.__main__ import CATALOGUE, read, updated
from vlm_operator.sglang.catalogue.generate.spans import expand
from vlm_operator.sglang.catalogue.releases import release, versions

# Asks the engine's parser, in a process of its own, since importing the engine takes seconds and much memory.
ASK = """
import argparse, json
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(add_help=False)
ServerArgs.add_cli_args(parser)
print(json.dumps([
    {
        "name": action.dest,
        "flags": action.option_strings,
        "many": action.nargs if isinstance(action.nargs, str) else None,
        "choices": sorted(map(str, action.choices)) if action.choices else None,
        "default": action.default,
    }
    for action in parser._actions
], default=repr))
"""


@pytest.mark.parametrize("version", versions())
def test_the_committed_catalogue_comes_out_of_the_published_wheel(version, wheel):
    found, sections = read(wheel(version))
    assert found == version
    assert sections == expand(json.loads(CATALOGUE.read_text("utf-8")))[version]


def test_the_committed_file_is_as_the_generator_writes_it():
    assert updated(CATALOGUE.read_text("utf-8"), []) == CATALOGUE.read_text("utf-8")


@pytest.fixture(scope="session")
def parser() -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(ENGINE), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-s", "-c", ASK], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_catalogue_has_exactly_the_flags_of_the_engines_own_parser(parser):
    flags = {(action["name"], flag) for action in parser for flag in action["flags"]}
    known = {(field.name, flag) for flag, (field, _) in release(versions()[-1]).spellings.items()}
    assert known == flags


def test_the_catalogue_has_the_choices_and_defaults_of_the_engines_own_parser(parser):
    fields = release(versions()[-1]).fields
    first = {action["name"]: action for action in reversed(parser)}
    for name, action in first.items():
        field = fields[name]
        assert field.many == action["many"], name
        # Choices and defaults that are computed when the engine starts are not in its source, and not checked.
        if field.choices:
            assert sorted(map(str, field.choices)) == action["choices"], name
        stated = release(versions()[-1]).default(name)
        if stated is not None and action["default"] != "==SUPPRESS==":
            assert stated == action["default"], name
