"""What is typed: every mistake is one line, before anything is made in the cluster."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.measure.rounds import LOAD, result, round_at
from unit.measure.test_twin import planned

from vlm_operator.cli import bench
from vlm_operator.cli.bench_measure import Bench
from vlm_operator.cli.cluster import Connection
from vlm_operator.cli.errors import InvalidInputs
from vlm_operator.cli.main import main
from vlm_operator.cli.records import Records
from vlm_operator.errors import InvalidInput
from vlm_operator.measure.result import Result
from vlm_operator.measure.twin import Change


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "--rounds: 0 is not between 1 and 1000"),
        (["--against", "other", "--rounds", "4"], "--rounds: 4 rounds say nothing about a difference: give 6 or more"),
        (
            ["--against", "other", "--rounds", "7"],
            "--rounds: of 7 one server would be measured first once more than the other, and they change places every "
            "round: give an even number, 6 or 8",
        ),
        (["--each", "--rounds", "2"], "--rounds: 2 rounds say nothing"),
        (["--seed", "-1"], "--seed: -1 is not between"),
        (["--each", "--start-timeout", "0"], "--start-timeout: 0 is not between 1 and 86400"),
        (["--start-timeout", "60"], "--start-timeout: belongs to a twin: --without, --set or --each makes one"),
        (["--against", "other", "--start-timeout", "60"], "--start-timeout: belongs to a twin"),
        (["--against", ""], "--against: names nobody"),
        (
            ["--against", "other", "--against-key", "k:key"],
            "--against-key: belongs to a server that --against names by its URL",
        ),
        (["--against-model", "m"], "--against-model: belongs to a server"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "vlm", *arguments]) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert errors.startswith(f"error: {said}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "0"], "--steps: 0 is not between 1 and 1000"),
        (["--timeout", "0"], "--timeout: 0 is not between 1 and 86400"),
        (["--nsight", "--seconds", "-1"], "--seconds: -1 is not between 1 and 86400"),
        (["--nsight", "--start-timeout", "0"], "--start-timeout: 0 is not between 1 and 86400"),
        (["--nsight", "--steps", "9"], "--steps: has no meaning with --nsight, which records --seconds"),
        (["--nsight", "--stack"], "--stack: has no meaning with --nsight"),
        (["--nsight", "--timeout", "9"], "--timeout: has no meaning with --nsight"),
        (["--seconds", "9"], "--seconds: belongs to --nsight"),
        (["--start-timeout", "9"], "--start-timeout: belongs to --nsight"),
    ],
)
def test_a_mistake_in_a_profile_is_told_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "vlm", *arguments]) == 2
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
    assert errors.startswith(f"error: {said}")


@pytest.mark.parametrize("kept", ["rounds.jsonl", "result.json", "profile.json"])
def test_a_folder_that_holds_a_measurement_is_not_written_over(kept: str, tmp_path: Path) -> None:
    (tmp_path / kept).touch()
    with pytest.raises(InvalidInputs, match="holds a measurement already: give another folder"):
        Records.begin(str(tmp_path), "vlm", "profile")


@pytest.mark.parametrize("options", [["--without", "a", "--set", "a=1"], ["--against", "x", "--each"]])
def test_one_thing_is_compared_at_a_time(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "vlm", *options])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "x ", "-x", "ü"])
def test_a_name_that_no_service_can_have_is_refused_before_the_cluster_is_asked(name: str) -> None:
    """An empty one would be answered with the list of all of them."""
    with pytest.raises(InvalidInputs, match=f'NAME: is "{re.escape(name)}", but a VLMService has lower-case letters'):
        Connection(None, "team").service(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("flag", ["without", "set"])
def test_a_setting_without_a_name_is_not_taken_for_a_measurement_without_a_twin(flag: str) -> None:
    """As a shell's variable that is not set leaves it."""
    service, plan = planned()
    subject = SimpleNamespace(service=service, plan=plan)
    options = argparse.Namespace(**{"without": None, "set": None, "each": False, flag: ""})
    with pytest.raises(InvalidInput, match=f"--{flag}"):
        bench._changes(options, subject)  # type: ignore[arg-type]


def stand_in(
    monkeypatch: pytest.MonkeyPatch, changes: list[Change], measure: Callable[[Bench, Change], Result]
) -> None:
    """For the cluster and what is measured there."""
    subject = SimpleNamespace(service=None, replicas=1, planned=dict)
    for name, stand_in in (
        ("connect", lambda *_: None),
        ("measured", lambda *_: subject),
        ("load_of", lambda *_, **__: (LOAD, [])),
        ("_changes", lambda *_: (changes, [])),
        ("remember", lambda *_: None),
    ):
        monkeypatch.setattr(bench, name, stand_in)
    monkeypatch.setattr(Bench, "beside_twin", measure)


def test_of_each_setting_one_that_cannot_be_left_out_does_not_take_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = [round_at(n, t, 4.0 + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
    changes = [Change("a", 0, 22), Change("b", 0, 22)]

    def measure(measuring: Bench, change: Change) -> Result:
        if change.name == "a":
            raise InvalidInput("spec.engine.settings.a", "0 cannot be")
        return replace(result(rounds, "ours", change.label), change=change)

    stand_in(monkeypatch, changes, measure)
    assert main(["bench", "vlm", "--each", "--folder", str(tmp_path / "kept"), "-o", "json"]) == 0
    out, errors = capsys.readouterr()
    assert [each["targets"][1]["name"] for each in json.loads(out)] == ["b=0"]
    assert "note: not measured: a=0: spec.engine.settings.a: 0 cannot be" in errors


def test_what_could_not_be_removed_makes_the_exit_code_one_though_all_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(measuring: Bench, change: Change) -> Result:
        measuring.left.append("Job x could not be removed")
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
    assert bench._show(options, [one], ["b cannot be left out"], Records(Path("saved"))) == 0
    out, errors = capsys.readouterr()
    assert [each["targets"][1]["name"] for each in json.loads(out)] == ["a=0"]
    assert errors == "note: not measured: b cannot be left out\n"
