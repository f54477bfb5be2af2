"""When no winner may be named, and what is said beside one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.measure.rounds import LOAD, result, round_at

from vlm_operator.measure.curve import knee
from vlm_operator.measure.result import Result
from vlm_operator.measure.rounds import Round, summarize
from vlm_operator.measure.twin import Change


def pairs(count: int = 6, faster: float = 1.2) -> list[Round]:
    return [round_at(n, t, 4.0 * (faster if t else 1.0) + 0.01 * n) for n in range(1, count + 1) for t in (0, 1)]


@pytest.mark.parametrize("failed", [40, 3])
def test_a_server_that_dies_in_a_round_that_the_other_does_not_have_is_no_winner(failed: int) -> None:
    ours = replace(round_at(7, 0, 1.0, failed=failed), answers=())
    found = result([*pairs(), ours], "ours", "theirs", complete=False)
    [comparison] = found.comparisons
    assert (comparison.winner, comparison.pairs) == (None, 6)
    assert comparison.sentence().startswith(f"no winner: {failed} requests failed")
    assert comparison.to_json()["failures"] == failed


def told(change: Change, ours: Any, theirs: Any) -> Result:
    """A comparison with a twin whose engines told those values of the changed setting; None: nothing."""
    values = {0: ours, 1: theirs}
    rounds = [replace(r, settings={} if (v := values[r.target]) is None else {change.name: v}) for r in pairs()]
    return replace(result(rounds, "vlm", change.label), change=change)


CHANGED = Change("chunked_prefill_size", 4096, 8192)


@pytest.mark.parametrize(
    ("change", "ours", "theirs", "why"),
    [
        (CHANGED, 8192, 8192, "the twin and the service both tell chunked_prefill_size=8192"),
        (CHANGED, 8192, 2048, "the twin was to have chunked_prefill_size=4096 and tells 2048"),
        (Change("a", None, 5), 5, 5, "the twin and the service both tell a=5"),
        (Change("a", {"image": 2}, {"image": 1}), {"image": 1}, {"image": 1}, "the twin and the service both tell a="),
    ],
)
def test_a_setting_that_is_not_in_force_in_the_twin_gets_no_verdict(
    change: Change, ours: Any, theirs: Any, why: str
) -> None:
    [comparison] = told(change, ours, theirs).comparisons
    assert comparison.winner is None
    assert comparison.sentence().startswith(f"no verdict: {why}")
    assert comparison.to_json()["withheld"].startswith(why)


@pytest.mark.parametrize(
    ("change", "ours", "theirs"),
    [
        (CHANGED, 8192, 4096),
        (CHANGED, 8192, None),
        (CHANGED, 8192, "4096"),
        (CHANGED, 4096, 2048),  # a half for each of two ranks, in both
        (Change("a", 1, 0.9), 0.9, 1.0),
        (Change("a", True, None), None, "True"),
        (Change("SGLANG_A", True, None), None, "1"),  # as a variable is told
        (Change("SGLANG_A", False, None), "1", "0"),
        (Change("a", {"image": 2}, {"image": 1}), '{"image": 1}', '{"image": 2}'),
    ],
)
def test_a_setting_that_is_in_force_or_of_which_nothing_is_told_gets_one(
    change: Change, ours: Any, theirs: Any
) -> None:
    [comparison] = told(change, ours, theirs).comparisons
    assert comparison.winner == "vlm"


def test_the_setting_is_told_with_both_values() -> None:
    assert told(CHANGED, 8192, 4096).to_json()["change"] == {
        "setting": "chunked_prefill_size", "service": 8192, "twin": 4096,
    }  # fmt: skip


def test_images_that_had_come_before_are_a_warning() -> None:
    counters = {"vlmserve_images_received_total": 40, "vlmserve_images_repeated_total": 10}
    rounds = [replace(r, counters=counters) if r.target == 0 else r for r in pairs()]
    said = [r for r in result(rounds, "ours", "theirs").remarks if "before" in r]
    assert said == [
        "60 of 240 images had come to ours before, so its caches may have answered for them: give another --seed, and keep "
        "other clients away meanwhile"
    ]
    none = {**counters, "vlmserve_images_repeated_total": 0}
    assert "before" not in " ".join(result([replace(r, counters=none) for r in rounds], "ours", "theirs").remarks)


def test_requests_that_failed_in_a_warm_up_are_told() -> None:
    warm_ups = [round_at(0, 0, 4.0, failed=15), round_at(0, 1, 4.0)]
    found = result([*warm_ups, *pairs()], "ours", "theirs")
    assert found.remarks[0] == "in the warm-up of ours 15 of 40 requests failed: connection refused"
    assert found.comparisons[0].winner == "ours"


def test_several_verdicts_at_once_are_told_to_miss_by_chance() -> None:
    rounds = [replace(r, concurrency=level) for r in pairs() for level in (1, 8, 64)]
    found = result(rounds, "ours", "theirs", load=replace(LOAD, concurrency=(1, 8, 64)))
    assert "of 3 such intervals 0.2 miss by chance; measure again what matters" in found.remarks
    assert "by chance" not in " ".join(result(pairs(), "ours", "theirs").remarks)


def test_a_knee_at_the_end_of_what_counts_is_not_called_the_end_of_what_was_measured() -> None:
    points = [(1, 40.0, 0), (8, 40 / 6, 0), (64, 40 / 45, 0), (400, 40 / 90, 5)]
    rounds = [round_at(1, 0, seconds, concurrency=level, failed=failed) for level, seconds, failed in points]
    found = knee(summarize(rounds))
    assert found is not None
    assert found.sentence.endswith(
        "it is the highest concurrency that was measured without failures, in rounds that do not differ widely, so the knee "
        "may lie beyond it"
    )
    whole = knee(summarize(rounds[:3]))
    assert whole is not None
    assert whole.sentence.endswith("it is the highest concurrency that was measured, so the knee may lie beyond it")
