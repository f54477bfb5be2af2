"""What is typed: every mistake is one line, before anything is created in the cluster."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.bench.measurements import LOAD, result, round_at
from unit.bench.test_twin import planned

from vlm_bench import commands
from vlm_bench.commands import bench
from vlm_bench.commands.measurement import Measurement
from vlm_bench.commands.output import Folder
from vlm_bench.statistics.result import Result
from vlm_bench.twins.twin import Change
from vlm_operator.cli.main import main
from vlm_operator.errors import InvalidInput, InvalidInputs


@pytest.mark.parametrize("command", ["bench", "profile"])
def test_without_the_extra_one_sentence_says_how_to_get_it(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "find_spec", lambda name: None if name == "scipy" else name)
    assert main([command, "vlm"]) == 2
    assert capsys.readouterr() == (
        "",
        f"error: {command} needs scipy: run pip install 'vlm-operator[bench]'\n",
    )


def test_planning_loads_neither_this_program_nor_its_libraries(tmp_path: Path) -> None:
    (nodes := tmp_path / "nodes.yaml").write_text("{apiVersion: v1, kind: List, items: []}")
    program = (
        "import sys, vlm_operator.__main__\n"
        "from vlm_operator.cli.main import main\n"
        "assert main(['plan', '-f', 'examples/qwen3-vl-h100.yaml', '--nodes', sys.argv[1], '-o', 'json']) == 0\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'vlm_bench', 'scipy', 'matplotlib'}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(nodes)], capture_output=True, text=True)
    assert (done.returncode, done.stderr.split()) == (0, [])


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("bench", "--rounds 0", "--rounds: 0 is not between 1 and 1000"),
        ("bench", "--against other --rounds 4", "--rounds: 4 rounds are too few to compare: give 6 or more"),
        ("bench", "--against other --rounds 7", "--rounds: the servers change places every round"),
        ("bench", "--each --rounds 2", "--rounds: 2 rounds are too few"),
        ("bench", "--seed -1", "--seed: -1 is not between"),
        ("bench", "--each --start-timeout 0", "--start-timeout: 0 is not between 1 and 86400"),
        ("bench", "--start-timeout 60", "--start-timeout: is for a twin"),
        ("bench", "--against other --start-timeout 60", "--start-timeout: is for a twin"),
        ("bench", "--against=", "--against: is empty"),
        ("bench", "--against other --against-key k:key", "--against-key: is for a server given by URL"),
        ("bench", "--against-model m", "--against-model: is for a server given by URL"),
        ("profile", "--steps 0", "--steps: 0 is not between 1 and 1000"),
        ("profile", "--timeout 0", "--timeout: 0 is not between 1 and 86400"),
        ("profile", "--nsight --seconds -1", "--seconds: -1 is not between 1 and 86400"),
        ("profile", "--nsight --start-timeout 0", "--start-timeout: 0 is not between 1 and 86400"),
        ("profile", "--nsight --steps 9", "--steps: has no effect with --nsight, which records --seconds"),
        ("profile", "--nsight --stack", "--stack: has no effect with --nsight"),
        ("profile", "--nsight --timeout 9", "--timeout: has no effect with --nsight"),
        ("profile", "--seconds 9", "--seconds: is for --nsight"),
        ("profile", "--start-timeout 9", "--start-timeout: is for --nsight"),
    ],
)
def test_a_mistake_is_one_line_with_the_next_step(
    command: str, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "vlm", *arguments.split()]) == 2
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
    assert errors.startswith(f"error: {message}")
    assert re.search(r": [a-z ]+", errors.removeprefix(f"error: {message.split(':')[0]}:"))


@pytest.mark.parametrize("kept", ["rounds.jsonl", "result.json", "profile.json"])
def test_a_folder_that_holds_a_measurement_is_not_written_over(kept: str, tmp_path: Path) -> None:
    (tmp_path / kept).touch()
    with pytest.raises(InvalidInputs, match="holds a measurement already: choose another folder"):
        Folder.create(str(tmp_path), "vlm", "profile")


@pytest.mark.parametrize("options", [["--without", "a", "--set", "a=1"], ["--against", "x", "--each"]])
def test_one_thing_is_compared_at_a_time(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "vlm", *options])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["without", "set"])
def test_a_setting_without_a_name_is_not_taken_for_a_measurement_without_a_twin(flag: str) -> None:
    """As a shell's variable that is not set leaves it."""
    service, plan = planned()
    subject = SimpleNamespace(service=service, plan=plan)
    options = argparse.Namespace(**{"without": None, "set": None, "each": False, flag: ""})
    with pytest.raises(InvalidInput, match=f"--{flag}"):
        bench._changes(options, subject)  # type: ignore[arg-type]


def stand_in(
    monkeypatch: pytest.MonkeyPatch, changes: list[Change], measure: Callable[[Measurement, Change], Result]
) -> None:
    """For the cluster and what is measured there."""
    subject = SimpleNamespace(service=None, ready_replicas=1, planned=dict)
    for name, replacement in (
        ("connect", lambda *_: None),
        ("measured_service", lambda *_: subject),
        ("load_of", lambda *_, **__: (LOAD, [])),
        ("_changes", lambda *_: (changes, [])),
    ):
        monkeypatch.setattr(bench, name, replacement)
    monkeypatch.setattr(Measurement, "save_summary", lambda *_: None)
    monkeypatch.setattr(Measurement, "with_twin", measure)


def test_of_each_setting_one_that_cannot_be_left_out_does_not_take_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = [round_at(n, t, 4.0 + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
    changes = [Change("a", 0, 22), Change("b", 0, 22)]

    def measure(measuring: Measurement, change: Change) -> Result:
        if change.name == "a":
            raise InvalidInput("spec.engine.settings.a", "0 cannot be")
        return replace(result(rounds, "ours", change.label), change=change)

    stand_in(monkeypatch, changes, measure)
    assert main(["bench", "vlm", "--each", "--folder", str(tmp_path / "kept"), "-o", "json"]) == 0
    out, errors = capsys.readouterr()
    assert [each["targets"][1]["name"] for each in json.loads(out)] == ["b=0"]
    assert "note: not measured: a=0: spec.engine.settings.a: 0 cannot be" in errors


def test_what_could_not_be_deleted_makes_the_exit_code_one_though_all_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(measuring: Measurement, change: Change) -> Result:
        measuring.left.append("Job x could not be deleted")
        rounds = [round_at(n, t, 4.0 + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
        return replace(result(rounds, "ours", change.label), change=change)

    stand_in(monkeypatch, [Change("a", 0, 22)], measure)
    assert main(["bench", "vlm", "--without", "a", "--folder", str(tmp_path / "kept"), "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["complete"]


def test_each_is_a_list_in_json_however_many_settings_there_are_and_tells_what_it_leaves_aside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = [round_at(n, t, 4.0 + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
    one = replace(result(rounds, "ours", "a=0"), change=Change("a", 0, 22))
    options = argparse.Namespace(output="json", each=True)
    assert bench._show(options, [one], ["b cannot be left out"], Folder(Path("saved"))) == 0
    out, errors = capsys.readouterr()
    assert [each["targets"][1]["name"] for each in json.loads(out)] == ["a=0"]
    assert errors == "note: not measured: b cannot be left out\n"
