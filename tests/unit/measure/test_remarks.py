"""Notes that rounds give reason for, and none where they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.measure.rounds import answers, result, round_at

from vlm_operator.measure.rounds import Round


def sound(number: int, target: int = 0, **changes: object) -> Round:
    """A round of 10 s with 200 answers that nothing is to be said of."""
    made = replace(round_at(number, target, 10.0, count=200), asked_tokens=11, cpu_share=0.2)
    return replace(made, **changes)  # type: ignore[arg-type]


def only(*rounds: Round, targets: tuple[str, ...] = ("ours",)) -> str:
    [remark] = result(rounds, *targets).remarks
    return remark


def test_nothing_is_said_of_rounds_that_are_long_steady_and_whole() -> None:
    assert result([sound(1), sound(2)]).remarks == []
    assert replace(result([sound(1)]), notes=("a note",)).remarks == ["a note"]


def test_rounds_that_differ_widely_are_no_measurement_to_rely_on() -> None:
    said = only(sound(1), sound(2, seconds=22.5))
    assert said == (
        "rounds differ widely, as they do where other work shares the machine: ours at 8 at once 8.89 to 20.00 requests/s"
    )


def test_rounds_of_a_few_seconds_are_called_short() -> None:
    said = only(sound(1, seconds=4.0), sound(2, seconds=4.4), sound(1, 1), targets=("ours", "theirs"))
    assert said.startswith("rounds shorter than 5 s show little of steady serving")
    assert said.endswith("ours at 8 at once 4.2 s; more --requests make them longer")


def test_a_load_that_fills_its_core_is_said_to_hold_the_rates_back() -> None:
    said = only(*(sound(n, cpu_share=0.93) for n in (1, 2)))
    assert "the load's own program was busy for most of the core that it can use (ours at 8 at once 93%)" in said
    assert "draws a ratio towards 1" in said


def test_answers_with_fewer_tokens_than_asked_for_are_counted() -> None:
    cut = (*answers(150), *answers(50, tokens=3))
    said = only(sound(1), sound(1, 1, answers=cut), targets=("ours", "theirs"))
    assert "50 of 200 of theirs at 8 at once, 9 of 11 in the mean" in said


def test_tokens_that_a_server_does_not_tell_are_called_assumed() -> None:
    said = only(sound(1), sound(1, 1, tokens_told=False), targets=("ours", "theirs"))
    assert said.startswith("theirs does not tell how many tokens its answers have")
    assert said.endswith("have the 11 that were asked for")


@pytest.mark.parametrize(("count", "said"), [(199, ["ours at 8 at once 199"]), (200, [])])
def test_a_p99_of_few_answers_is_called_what_it_is(count: int, said: list[str]) -> None:
    remarks = result([sound(1, answers=answers(count))], "ours").remarks
    assert [remark.split(": ")[1] for remark in remarks if "p99" in remark] == said


def test_the_warm_up_gives_no_reason_for_a_note() -> None:
    assert result([sound(0, seconds=1.0, cpu_share=1.0, answers=answers(5, tokens=2)), sound(1)]).remarks == []
