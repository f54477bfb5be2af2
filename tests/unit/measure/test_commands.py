"""What is typed: every mistake is one line, before anything is made in the cluster."""

from __future__ import annotations

import pytest

from vlm_operator.cli.main import main


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
