"""What rounds show: rates, failures, who is faster, the knee of a curve, and the reasons to doubt it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from unit.bench.measurements import LOAD, answers, result, round_at

from vlm_bench.commands.measurement import summary
from vlm_bench.programs.driver import MARK
from vlm_bench.statistics.comparison import knee
from vlm_bench.statistics.result import Result
from vlm_bench.statistics.rounds import Round, read_line, round_of, summarize
from vlm_bench.twins.twin import Change

CURVE = replace(LOAD, concurrency=(1, 8, 64, 400))


def pairs(slower: float = 1.2, failed: int = 0) -> list[Round]:
    """Six pairs of rounds; the second server takes so much longer."""
    return [
        round_at(n, t, 4.0 * (slower if t else 1.0) + 0.01 * n, failed=failed * t) for n in range(1, 7) for t in (0, 1)
    ]


def curve(*points: tuple[int, float, float], failed: int = 0) -> list[Round]:
    """Concurrency, seconds of a round, milliseconds of an answer."""
    return [
        replace(round_at(1, 0, seconds, concurrency=level, failed=failed), answers=answers(40 - failed, ttft_ms=wait))
        for level, seconds, wait in points
    ]


def test_rates_are_means_over_rounds_and_percentiles_over_requests_without_the_warm_up() -> None:
    slow = replace(round_at(1, 0, 1.0, count=10), answers=answers(10, ttft_ms=900))
    [found] = summarize([round_at(0, 0, 100.0), slow, round_at(2, 0, 5.0, count=90)])
    assert (found.rounds, found.requests, found.failures) == (2, 100, 0)
    assert found.requests_per_second == pytest.approx((10 + 18) / 2)
    assert found.tokens_per_second == pytest.approx((10 + 18) / 2 * 11)
    assert (found.slowest_round, found.fastest_round) == (10, 18)
    assert (found.ttft_ms[50], found.ttft_ms[95]) == (100, 900)


def test_requests_that_failed_are_counted_and_make_no_throughput() -> None:
    [some] = summarize([round_at(1, 0, 4.0, failed=10)])
    assert (some.failures, some.errors) == (10, {"connection refused": 10})
    assert some.requests_per_second == pytest.approx(30 / 4)
    [all_of_them] = summarize([Round(1, 1, 0, 8, 40, 0.0, errors={"gone": 40})])
    assert (all_of_them.requests_per_second, all_of_them.ttft_ms[50]) == (0, None)


def test_a_line_of_the_pods_log_becomes_a_round() -> None:
    event = {
        "event": "round", "line": 3, "number": 1, "round": 1, "target": 0, "concurrency": 8, "requests": 2, "seconds": 1.5,
        "seed": 9, "answers": [[12.5, 3.25, 45.0, 11]], "errors": {"gone": 1}, "counters": {}, "settings": {"a": 1},
    }  # fmt: skip
    found = round_of(read_line(MARK + json.dumps(event)) or {})
    assert (found.answers[0].ttft_ms, found.failures, found.settings) == (12.5, 1, {"a": 1})


@pytest.mark.parametrize("line", ["", "Starting warmup...", f"{MARK}not json", '{"event": "round"}'])
def test_other_lines_of_the_log_are_skipped(line: str) -> None:
    assert read_line(line) is None


@pytest.mark.parametrize(
    ("slower", "names", "verdict"),
    [
        (1.2, ("ours", "theirs"), "ours answers 19.8% more requests/s than theirs (ours to theirs: 1.198, 95%"),
        (5, ("ours", "theirs"), "ours answers 5.0 times the requests/s of theirs (ours to theirs: 4.9"),
        (1 / 1.2, ("theirs", "ours"), "ours answers "),
    ],
)
def test_the_faster_server_is_named_with_the_ratio_and_its_interval(
    slower: float, names: tuple[str, str], verdict: str
) -> None:
    [comparison] = result(pairs(slower), *names).comparisons
    assert (comparison.winner, comparison.pairs) == ("ours", 6)
    assert comparison.sentence().startswith(verdict)


def test_there_is_no_winner_if_the_interval_includes_one() -> None:
    noise = [0.1, -0.2, 0.15, -0.05, 0.12, -0.1]
    rounds = [round_at(n, t, 4.0 + (noise[n - 1] if t else 0)) for n in range(1, 7) for t in (0, 1)]
    [comparison] = result(rounds, "ours", "theirs").comparisons
    assert comparison.winner is None
    assert "no difference shown" in comparison.sentence()


def test_there_is_no_winner_if_requests_failed_in_whichever_round() -> None:
    alone = replace(round_at(7, 0, 1.0, failed=3), answers=())
    everything = [replace(round_at(n, t, 4.0, failed=40), answers=()) for n in range(1, 7) for t in (0, 1)]
    for rounds, count in ((pairs(failed=1), 6), ([*pairs(), alone], 3), (everything, 480)):
        [comparison] = result(rounds, "ours", "theirs", complete=False).comparisons
        assert (comparison.winner, comparison.pairs) == (None, 6)
        assert comparison.sentence().startswith(f"no winner: {count} requests failed")
        assert comparison.to_json()["failures"] == count


def test_only_rounds_that_both_have_are_compared() -> None:
    rounds = [round_at(n, 0, 4.0) for n in range(1, 8)] + [round_at(n, 1, 4.0) for n in range(1, 3)]
    [comparison] = result(rounds, "ours", "theirs").comparisons
    assert comparison.pairs == 2
    assert "2 pairs of rounds are too few" in comparison.sentence()


def reported(change: Change, ours: Any, theirs: Any) -> Result:
    """A comparison with a twin whose engines report those values of the changed setting; None: nothing."""
    values = {0: ours, 1: theirs}
    rounds = [replace(r, settings={} if (v := values[r.target]) is None else {change.name: v}) for r in pairs()]
    return replace(result(rounds, "vlm", change.label), change=change)


CHANGED = Change("chunked_prefill_size", 4096, 8192)


@pytest.mark.parametrize(
    ("change", "ours", "theirs", "why"),
    [
        (CHANGED, 8192, 8192, "the twin and the service both report chunked_prefill_size=8192"),
        (CHANGED, 8192, 2048, "the twin should have chunked_prefill_size=4096 but reports 2048"),
        (Change("a", None, 5), 5, 5, "the twin and the service both report a=5"),
        (
            Change("a", {"image": 2}, {"image": 1}),
            {"image": 1},
            {"image": 1},
            "the twin and the service both report a=",
        ),
    ],
)
def test_there_is_no_verdict_if_the_setting_is_not_in_effect_in_the_twin(
    change: Change, ours: Any, theirs: Any, why: str
) -> None:
    [comparison] = reported(change, ours, theirs).comparisons
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
        (Change("SGLANG_A", True, None), None, "1"),  # variables are texts
        (Change("SGLANG_A", False, None), "1", "0"),
        (Change("a", {"image": 2}, {"image": 1}), '{"image": 1}', '{"image": 2}'),
    ],
)
def test_there_is_a_verdict_if_the_setting_is_in_effect_or_not_reported(change: Change, ours: Any, theirs: Any) -> None:
    found = reported(change, ours, theirs)
    assert found.comparisons[0].winner == "vlm"
    assert found.to_json()["change"] == {"setting": change.name, "service": change.planned, "twin": change.measured}


def test_the_knee_is_where_throughput_over_latency_is_greatest() -> None:
    [found] = result(curve((1, 40, 900), (8, 8, 1500), (64, 2, 2400), (400, 1.9, 14_000)), load=CURVE).knees
    assert found is not None
    assert found.concurrency == 64
    assert "20.00 requests/s" in found.sentence


def test_a_knee_at_the_highest_concurrency_may_be_above_it() -> None:
    points = [(1, 40.0, 0), (8, 40 / 6, 0), (64, 40 / 45, 0), (400, 40 / 90, 5)]
    rounds = [round_at(1, 0, seconds, concurrency=level, failed=failed) for level, seconds, failed in points]
    for measured, which in ((rounds, "without failures or rounds that differ widely"), (rounds[:3], "measured")):
        found = knee(summarize(measured))
        assert found is not None
        assert found.sentence.endswith(f"it is the highest concurrency {which}, so the knee may be above it")


@pytest.mark.parametrize("failed", [0, 1])
def test_there_is_no_knee_of_two_points_or_failed_requests(failed: int) -> None:
    points = ((1, 40.0, 900.0), (8, 8.0, 1000.0), (64, 1.0, 1100.0))
    assert result(curve(*points[: 2 + failed], failed=failed), load=CURVE).knees == [None]


def test_rounds_that_differ_widely_have_no_knee_and_a_remark() -> None:
    once = curve((1, 40, 900), (8, 8, 1500), (64, 2, 2400))
    found = result([*once, *(replace(each, round=2, seconds=each.seconds * 3) for each in once)], load=CURVE)
    assert found.knees == [None]
    assert "qwen3-vl at concurrency 64 6.67 to 20.00 requests/s" in " ".join(found.remarks)


def test_the_failure_says_how_many_of_how_many_and_why() -> None:
    failure = result([round_at(1, 0, 4.0, failed=30)], complete=False).failure()
    assert failure == "30 of 40 requests to qwen3-vl failed, which ended the measurement: connection refused"
    assert result([round_at(1, 0, 4.0)]).failure() is None


def test_a_setting_that_the_engine_reports_otherwise_is_shown() -> None:
    told = replace(round_at(1, 0, 4.0), settings={"max_running_requests": 4})
    assert result([told]).differing() == {"max_running_requests": (8, 4)}
    assert result([replace(told, settings={"max_running_requests": "8"})]).differing() == {}


def test_the_status_keeps_the_point_with_the_most_requests_and_no_failures() -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)
    found = summary("ab12", result(curve((1, 40, 900), (8, 8, 1500), (64, 2, 2400)), load=CURVE), now)
    assert found is not None
    assert (found.concurrency, found.requests_per_second, found.failures) == (64, 20.0, 0)
    assert (found.plan_hash, found.time) == ("ab12", "2026-11-29T12:00:00Z")
    # The 20 of 40 that were answered had the server for themselves.
    rounds = [round_at(1, 0, 4.0, concurrency=8), round_at(1, 0, 1.0, concurrency=64, failed=20)]
    found = summary("ab12", result(rounds, load=CURVE), now)
    assert found is not None
    assert (found.concurrency, found.failures) == (8, 0)
    assert summary("ab12", result([]), now) is None


def sound(number: int, target: int = 0, **changes: Any) -> Round:
    """A round of 10 s with 200 answers, without a reason for a remark."""
    return replace(round_at(number, target, 10.0, count=200), **{"asked_tokens": 11, "cpu_share": 0.2} | changes)


@pytest.mark.parametrize(
    ("rounds", "facts"),
    [
        ([sound(1), sound(2)], []),
        ([sound(0, seconds=1.0, cpu_share=1.0, answers=answers(5, tokens=2)), sound(1)], []),
        ([sound(1, answers=answers(200))], []),
        ([sound(1), sound(2, seconds=22.5)], ["differ widely", "ours at concurrency 8 8.89 to 20.00 requests/s"]),
        (
            [sound(1, seconds=4.0), sound(2, seconds=4.4), sound(1, 1)],
            ["shorter than 5 s", "ours at concurrency 8 4.2 s"],
        ),
        ([sound(1, cpu_share=0.93)], ["most of its core", "ours at concurrency 8 93%", "towards 1"]),
        (
            [sound(1), sound(1, 1, answers=(*answers(150), *answers(50, tokens=3)))],
            ["50 of 200 of theirs at concurrency 8, on average 9 of 11"],
        ),
        (
            [sound(1), sound(1, 1, reports_tokens=False)],
            ["theirs does not report token counts", "the 11 tokens requested"],
        ),
        ([sound(1, answers=answers(199))], ["p99", "ours at concurrency 8 199"]),
    ],
)
def test_rounds_give_reasons_to_doubt_them(rounds: list[Round], facts: list[str]) -> None:
    remarks = result(rounds, *("ours", "theirs")[: 1 + max(r.target for r in rounds)]).remarks
    assert len(remarks) == bool(facts)
    assert all(fact in remarks[0] for fact in facts)


def test_repeated_images_failed_warm_ups_and_several_verdicts_are_remarked() -> None:
    counters = {"vlmserve_images_received_total": 40, "vlmserve_images_repeated_total": 10}
    rounds = [replace(r, counters=counters) if r.target == 0 else r for r in pairs()]
    assert "ours had received 60 of 240 images before" in " ".join(result(rounds, "ours", "theirs").remarks)
    none = [replace(r, counters={**counters, "vlmserve_images_repeated_total": 0}) for r in rounds]
    assert "before" not in " ".join(result(none, "ours", "theirs").remarks)

    found = result([round_at(0, 0, 4.0, failed=15), *pairs()], "ours", "theirs")
    assert found.remarks[0] == "in the warm-up of ours 15 of 40 requests failed: connection refused"
    assert found.comparisons[0].winner == "ours"

    levels = [replace(r, concurrency=level) for r in pairs() for level in (1, 8, 64)]
    found = result(levels, "ours", "theirs", load=replace(LOAD, concurrency=(1, 8, 64)))
    assert "of 3 such intervals 0.2 miss the true value by chance; repeat what matters" in found.remarks
