"""Reading a wheel's source without running it, and many versions in one file."""

from __future__ import annotations

import json

import pytest

from vlm_operator.engines.generate.__main__ import catalogue, read

OLD = """
CHOICES = ["a", "b"] + ["c"]
class ServerArgs:
    tp_size: int = 1
    speed: str = "a"
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--speed", type=str, choices=CHOICES, default=ServerArgs.speed)
        parser.add_argument("--old-speed", action=DeprecatedAliasStoreAction, dest="speed", new_flag="--speed")
        parser.add_argument("--verbose", action="store_true")
"""
NEW = """
from sglang.srt.choices import CHOICES
class ServerArgs:
    tp_size: A[int, Arg(help="x", aliases=["--tensor-parallel-size"])] = 1
    speed: A[Optional[str], Arg(help="x", choices=CHOICES)] = None
    limits: A[Optional[Dict[str, int]], Arg(type_parser=json.loads)] = None
    mode: A[Literal["x", "y"], "help"] = "x"
    careful: A[Optional[bool], Arg(action=argparse.BooleanOptionalAction)] = None
    hosts: A[List[str], "help"] = msgspec.field(default_factory=list)
    inner: A[int, Arg(no_cli=True)] = 1
    verbose: A[bool, "help"] = False
"""
ENVIRON = """
class Envs:
    SGLANG_CACHE_MB = EnvInt(100)
    SGLANG_FAST = EnvBool(_default())
"""


def wheel(folder, version, server_args):
    """A folder as an unpacked wheel is."""
    srt = folder / version / "sglang" / "srt"
    srt.mkdir(parents=True)
    (srt / "server_args.py").write_text(server_args)
    (srt / "choices.py").write_text('CHOICES = sorted(["b", "a"])\n')
    (srt / "environ.py").write_text(ENVIRON)
    (srt / "other.py").write_text("x = get_bool_env_var('SGLANG_SEEN')\ny = os.environ['SGLANG_NAMED']\n")
    metadata = folder / version / f"sglang-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\nName: sglang\nVersion: {version}\n")
    return folder / version


def test_flags_declared_by_calls_are_read_with_the_field_that_they_set(tmp_path):
    version, fields, _ = read(wheel(tmp_path, "1.0.0", OLD))
    assert version == "1.0.0"
    assert fields == {
        "tp_size": {"flag": "--tensor-parallel-size", "aliases": ["--tp-size"], "type": "int", "default": 1},
        "speed": {
            "flag": "--speed",
            "type": "str",
            "choices": ["a", "b", "c"],
            "default": "a",
            "also": [{"flag": "--old-speed", "deprecated": "--speed"}],
        },
        "verbose": {"flag": "--verbose", "type": "bool"},
    }


def test_flags_declared_by_annotations_are_read_through_imports(tmp_path):
    _, fields, _ = read(wheel(tmp_path, "1.0.0", NEW))
    assert fields == {
        "tp_size": {"flag": "--tp-size", "type": "int", "aliases": ["--tensor-parallel-size"], "default": 1},
        "speed": {"flag": "--speed", "type": "str", "choices": ["a", "b"], "default": None},
        "limits": {"flag": "--limits", "type": "json", "default": None},
        "mode": {"flag": "--mode", "type": "str", "choices": ["x", "y"], "default": "x"},
        "careful": {"flag": "--careful", "type": "bool", "negative": "--no-careful", "default": None},
        "hosts": {"flag": "--hosts", "type": "str", "many": "+", "default": []},
        "verbose": {"flag": "--verbose", "type": "bool", "default": False},
    }


def test_variables_are_read_where_they_are_declared_and_where_they_are_used(tmp_path):
    _, _, variables = read(wheel(tmp_path, "1.0.0", OLD))
    assert variables == {
        "SGLANG_CACHE_MB": {"type": "int", "default": 100},
        "SGLANG_FAST": {"type": "bool"},
        "SGLANG_SEEN": {"type": "bool"},
        "SGLANG_NAMED": {"type": "str"},
    }


def test_an_action_that_nobody_taught_the_reader_stops_it(tmp_path):
    strange = OLD.replace('action="store_true"', "action=SurpriseAction")
    with pytest.raises(ValueError, match="--verbose: unknown action SurpriseAction"):
        read(wheel(tmp_path, "1.0.0", strange))


def test_a_version_in_which_nothing_changed_adds_nothing_but_its_number(tmp_path):
    wheels = [wheel(tmp_path, version, OLD) for version in ("1.0.10", "1.0.9")]
    both, one = json.loads(catalogue(wheels)), json.loads(catalogue(wheels[1:]))
    assert both["versions"] == ["1.0.9", "1.0.10"]
    assert (both["fields"], both["variables"]) == (one["fields"], one["variables"])


def test_a_changed_or_removed_flag_ends_its_span(tmp_path):
    found = json.loads(catalogue([wheel(tmp_path, "1.0.0", NEW), wheel(tmp_path, "1.1.0", OLD)]))
    assert [(span["since"], span.get("until")) for span in found["fields"]["tp_size"]] == [
        ("1.0.0", "1.0.0"),
        ("1.1.0", None),
    ]
    assert [(span["since"], span.get("until")) for span in found["fields"]["limits"]] == [("1.0.0", "1.0.0")]
