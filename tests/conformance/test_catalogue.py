"""The engine catalogue says what SGLang says: what is committed comes out of the published wheel, and the engine's own
command-line parser has the same flags."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from functools import cache
from typing import Any

import pytest

from minicluster.paths import ENGINE
from vlm_operator.engines.catalogue import release, versions
from vlm_operator.engines.generate.__main__ import CATALOGUE, read
from vlm_operator.engines.generate.merge import render
from vlm_operator.engines.images import image_cuda
from vlm_operator.engines.selection import REPOSITORY

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


def committed(version: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A version's fields and variables as the catalogue's file has them."""
    data = json.loads(CATALOGUE.read_text("utf-8"))
    order = data["versions"]

    def at(section: str) -> dict[str, Any]:
        return {
            name: {key: value for key, value in span.items() if key not in ("since", "until")}
            for name, spans in data[section].items()
            for span in spans
            if order.index(span["since"]) <= order.index(version) <= order.index(span.get("until", order[-1]))
        }

    return at("fields"), at("variables")


@pytest.fixture(scope="session")
def reading(wheel: Any) -> Any:
    """Version -> what a fresh run reads in its published wheel. All fourteen are 273 MB, and half a second each to read."""
    return cache(lambda version: read(wheel(version)))


@pytest.mark.parametrize("version", versions())
def test_the_committed_catalogue_comes_out_of_the_published_wheel(version, reading):
    found_version, fields, variables = reading(version)
    assert found_version == version
    assert (fields, variables) == committed(version)


def test_a_fresh_run_over_all_wheels_writes_the_committed_file(reading):
    found = {version: reading(version) for version in versions()}
    fields, variables = ({version: found[version][part] for version in found} for part in (1, 2))
    assert render(list(versions()), fields, variables) == CATALOGUE.read_text("utf-8")


def test_what_is_known_by_hand_of_an_image_s_cuda_agrees_with_what_its_wheel_requires(wheel):
    for version in versions():
        with zipfile.ZipFile(wheel(version)) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            wanted = re.search(r"^Requires-Dist: cuda-python[=>]=(\d+)", archive.read(name).decode(), re.MULTILINE)
        assert wanted is not None, version
        cuda = image_cuda(f"{REPOSITORY}:v{version}")
        assert cuda is not None
        assert cuda[0] == int(wanted[1]), version


@pytest.fixture(scope="session")
def parser() -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(ENGINE), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-s", "-c", ASK], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    actions: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return actions


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
