"""When an engine that lives counts as hung: not while it answers, produces or computes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.runtime.harness import make_plan

from vlm_runtime.hang import Look, Production, Stillness, patience, read_production

EXPOSITION = b"""\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="tiny",pp_rank="0",tp_rank="0"} 2.0
sglang:num_queue_reqs{engine_type="unified",model_name="tiny",pp_rank="0",tp_rank="0"} 1.0
sglang:num_running_reqs_offline_batch{engine_type="unified"} 9.0
sglang:realtime_tokens_total{engine_type="unified",mode="decode",model_name="tiny"} 40.0
sglang:realtime_tokens_total{engine_type="unified",mode="prefill_compute",model_name="tiny"} 64.0
sglang:time_to_first_token_seconds_bucket{le="0.1"} 7.0
sglang:time_to_first_token_seconds_count{model_name="tiny"} 3.0
process_cpu_seconds_total 12.0
"""
BUSY, IDLE = Production(produced=10, in_flight=2), Production(produced=10, in_flight=0)


def plan(args: list[str] | None = None, **runtime: int):  # type: ignore[no-untyped-def]
    return make_plan(engine={"args": args or []}, runtime=runtime)


@pytest.mark.parametrize(
    ("made", "idle", "busy"),
    [
        (plan(drain_seconds=10, startup_budget_seconds=60), 120, 330),
        (plan(drain_seconds=900, startup_budget_seconds=60), 900, 900),
        (plan(drain_seconds=300, startup_budget_seconds=1800), 300, 1800),
        (plan(["--watchdog-timeout", "3600"], drain_seconds=10, startup_budget_seconds=600), 120, 3630),
    ],
    ids=["short requests", "long requests", "a large model", "a slow engine"],
)
def test_patience_covers_the_longest_request_a_start_and_the_engines_own_watchdog(
    made: object, idle: float, busy: float
) -> None:
    found = patience(made)  # type: ignore[arg-type]
    assert (found.idle, found.busy) == (idle, busy)
    assert found.unready == 60


def test_the_engines_counters_are_read_whatever_their_labels() -> None:
    assert read_production(EXPOSITION) == Production(produced=107, in_flight=3)


def test_metrics_that_say_nothing_of_requests_are_no_evidence() -> None:
    assert read_production(b"") is None
    assert read_production(b"python_gc_objects_collected_total 3.0\n") is None


def still_after(*looks: Look) -> tuple[float, float]:
    """Seconds without a move, and without an answer, 100 s after the last look."""
    stillness = Stillness()
    for look in looks:
        stillness.add(look)
    now = looks[-1].at + 100
    return stillness.seconds(now), stillness.unanswered_seconds(now)


def test_an_idle_engine_that_answers_moves() -> None:
    assert still_after(Look(0, True, production=IDLE), Look(15, True)) == (0, 0)


def test_a_silent_engine_stands_still_from_the_first_question_without_an_answer() -> None:
    assert still_after(Look(0, True), Look(15, False), Look(30, False)) == (115, 115)


def test_tokens_that_come_while_nothing_answers_are_a_move() -> None:
    """A long step with short ones between: the control question waits, the tokens do not."""
    looks = [Look(15 * n, False, production=Production(n, 1)) for n in range(5)]
    assert still_after(*looks) == (0, 0)


def test_requests_without_tokens_are_no_move_though_it_answers() -> None:
    assert still_after(Look(0, True, production=BUSY), Look(15, True), Look(30, True, production=BUSY)) == (130, 0)


def test_a_paused_engine_is_excused() -> None:
    assert still_after(Look(0, True, production=BUSY), Look(15, True, excused=True)) == (0, 0)


def test_without_metrics_an_answer_is_enough() -> None:
    assert still_after(Look(0, True), Look(15, True)) == (0, 0)


LOOKS = st.lists(st.tuples(st.booleans(), st.booleans(), st.none() | st.integers(0, 3), st.integers(0, 2)), min_size=1)


@given(LOOKS)
def test_no_silence_is_longer_than_the_time_since_the_last_sign_of_life(
    drawn: list[tuple[bool, bool, int | None, int]],
) -> None:
    stillness, last_sign = Stillness(), -15.0
    for number, (answered, excused, produced, in_flight) in enumerate(drawn):
        at = 15.0 * number
        told = None if produced is None else Production(produced, in_flight)
        stillness.add(Look(at, answered, excused, told))
        if excused or (answered and told is not None and in_flight == 0):
            last_sign = at
        assert stillness.seconds(at) <= at - last_sign
        assert stillness.unanswered_seconds(at) <= stillness.seconds(at)
