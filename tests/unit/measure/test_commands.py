"""What is typed: every mistake is one line, before anything is made in the cluster."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
from unit.measure.rounds import result, round_at

from vlm_operator.cli import bench
from vlm_operator.cli.main import main
from vlm_operator.cli.records import Records
from vlm_operator.measure.twin import Change


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "--rounds: 0 is not between 1 and 1000"),
        (["--against", "other", "--rounds", "4"], "--rounds: 4 rounds say nothing about a difference: give 5 or more"),
        (["--each", "--rounds", "2"], "--rounds: 2 rounds say nothing"),
        (["--seed", "-1"], "--seed: -1 is not between"),
        (["--start-timeout", "0"], "--start-timeout: 0 is not above 0"),
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


@pytest.mark.parametrize("options", [["--without", "a", "--set", "a=1"], ["--against", "x", "--each"]])
def test_one_thing_is_compared_at_a_time(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "vlm", *options])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


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
