"""The queue of services."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from vlm_operator.controller.run.queue import NO_CAUSE, Cause, Key, WorkQueue

A, B = Key("default", "a"), Key("default", "b")


def queued(scenario: Callable[[WorkQueue], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The test of a scenario with a queue of its own, in a loop."""

    def test() -> None:
        async def inside_a_loop() -> None:
            await asyncio.wait_for(scenario(WorkQueue(jitter=lambda: 0.5)), 10)

        asyncio.run(inside_a_loop())

    return test


async def nothing_comes(queue: WorkQueue, seconds: float = 0.05) -> bool:
    try:
        await asyncio.wait_for(queue.take(), seconds)
    except (TimeoutError, asyncio.TimeoutError):
        return True
    return False


@queued
async def test_a_key_that_is_added_many_times_is_worked_on_once(queue: WorkQueue) -> None:
    for _ in range(100):
        queue.add(A)
    assert len(queue) == 1
    assert await queue.take() == A
    queue.done(A)
    assert await nothing_comes(queue)


@queued
async def test_a_key_is_never_worked_on_twice_at_the_same_time_and_what_came_meanwhile_is_not_lost(
    queue: WorkQueue,
) -> None:
    queue.add(A)
    await queue.take()
    queue.add(A)
    assert await nothing_comes(queue)
    queue.done(A)
    assert await queue.take() == A


@queued
async def test_a_look_without_an_event_is_work_whose_time_does_not_count(queue: WorkQueue) -> None:
    queue.recheck(A)
    assert await queue.take() == A
    queue.recheck(A)
    assert queue.done(A) is None
    assert await queue.take() == A, "what came meanwhile is not lost"
    assert queue.done(A) is None


@queued
async def test_other_keys_do_not_wait_for_one_that_is_worked_on(queue: WorkQueue) -> None:
    queue.add(A)
    await queue.take()
    queue.add(B)
    assert await queue.take() == B


@queued
async def test_a_crowd_of_late_events_is_one_piece_of_work(queue: WorkQueue) -> None:
    for _ in range(10):
        queue.add(A, after_seconds=0.05)
        await asyncio.sleep(0.002)
    assert await queue.take() == A
    queue.done(A)
    assert await nothing_comes(queue, 0.1)


@queued
async def test_an_event_brings_a_key_forward_that_would_come_later(queue: WorkQueue) -> None:
    queue.add(A, after_seconds=60)
    queue.add(A)
    assert await asyncio.wait_for(queue.take(), 1) == A


@queued
async def test_failures_wait_longer_and_longer_up_to_five_minutes_and_a_success_ends_that(queue: WorkQueue) -> None:
    waits = []
    for _ in range(12):
        queue.add(A)
        await queue.take()
        waits.append(queue.retry(A))
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(waits) == waits[-1] == 300.0
    queue.add(A)
    await queue.take()
    queue.done(A)
    queue.add(A)
    await queue.take()
    assert queue.retry(A) == 1.0


@queued
async def test_after_success_a_key_comes_again_by_itself(queue: WorkQueue) -> None:
    queue.add(A)
    await queue.take()
    queue.done(A, again_after_seconds=0.02)
    assert await asyncio.wait_for(queue.take(), 1) == A


@queued
async def test_a_service_that_is_gone_does_not_come_again_but_one_made_anew_does(queue: WorkQueue) -> None:
    queue.add(A)
    await queue.take()
    queue.forget(A)
    assert await nothing_comes(queue)
    queue.add(A)
    await queue.take()
    queue.add(A)
    queue.forget(A)
    assert await asyncio.wait_for(queue.take(), 1) == A


@pytest.mark.parametrize(
    ("cause", "wait"),
    [
        (Cause("u", "2", of_service=True), 1.0),
        (Cause("ours", "1", of_service=True), 8.0),
        (Cause("pod", "2"), 8.0),
        (NO_CAUSE, 8.0),
        (None, 8.0),
    ],
    ids=["the service", "the echo of a write", "a pod", "a node", "nothing"],
)
def test_only_a_change_of_the_service_during_failing_work_ends_the_back_off(cause, wait):
    async def scenario(queue: WorkQueue) -> None:
        for _ in range(3):
            queue.add(A)
            await queue.take()
            queue.retry(A)
        queue.add(A)
        await queue.take()
        if cause is not None:
            queue.add(A, cause=cause)
        assert queue.retry(A, lambda cause: cause.uid == "ours") == wait

    queued(scenario)


@queued
async def test_the_time_since_an_event_counts_waiting_and_failed_attempts(queue: WorkQueue) -> None:
    queue.add(A)
    await asyncio.sleep(0.05)
    queue.add(A)  # the first one counts
    await queue.take()
    queue.retry(A)
    queue.add(A, 0.0)
    await queue.take()
    since_event = queue.done(A)
    assert since_event is not None
    assert since_event >= 0.05


@queued
async def test_an_event_during_work_is_covered_by_the_next_work_only(queue: WorkQueue) -> None:
    queue.add(A)
    await queue.take()
    queue.add(A)
    assert queue.done(A) is not None
    await queue.take()
    assert queue.done(A) is not None


@queued
async def test_what_comes_by_itself_has_no_event_behind_it(queue: WorkQueue) -> None:
    queue.add(A)
    await queue.take()
    queue.done(A, again_after_seconds=0.01)
    await queue.take()
    assert queue.done(A) is None


@queued
async def test_the_echo_of_what_the_work_itself_wrote_queues_nothing_and_other_news_does(queue: WorkQueue) -> None:
    ours, theirs = Cause("u", "5"), Cause("u", "6")
    for news, depth in (([ours], 0), ([ours, theirs], 1), ([], 0)):
        queue.add(A)
        await queue.take()
        for cause in news:
            queue.add(A, cause=cause)
        queue.done(A, wrote=lambda cause: cause == ours)
        assert len(queue) == depth
        if depth:
            await queue.take()
            queue.done(A)


@queued
async def test_what_came_while_the_last_look_at_a_gone_service_was_going_on_is_looked_at(queue: WorkQueue) -> None:
    queue.add(A)
    await queue.take()
    queue.add(A, cause=Cause("u", "1"))
    queue.forget(A)
    assert len(queue) == 1


@queued
async def test_what_somebody_waits_for_goes_before_what_concerns_all(queue: WorkQueue) -> None:
    others = [Key("default", f"other-{n}") for n in range(5)]
    for key in (*others, A):
        queue.add(key, routine=True)
    queue.add(B)
    queue.add(A)
    assert [await queue.take() for _ in range(7)] == [B, A, *others]
    assert await nothing_comes(queue)


@queued
async def test_news_that_came_beside_a_routine_is_not_lost(queue: WorkQueue) -> None:
    queue.add(A)
    await queue.take()
    queue.add(A, routine=True)
    queue.add(A, cause=Cause("u", "1"))
    queue.done(A, 600)
    assert await queue.take() == A


@queued
async def test_a_key_that_was_brought_forward_and_failed_is_not_tried_again_before_its_time(queue: WorkQueue) -> None:
    queue.add(A, routine=True)
    queue.add(A)
    assert await queue.take() == A
    queue.retry(A)
    assert await nothing_comes(queue, 0.3)


@queued
async def test_a_key_comes_when_its_time_has_come_though_the_timer_is_early_by_its_resolution(queue: WorkQueue) -> None:
    loop = asyncio.get_running_loop()
    call_at = loop.call_at
    loop.call_at = lambda when, *of, **more: call_at(when - 0.02, *of, **more)  # type: ignore[method-assign]
    queue.add(A, after_seconds=0.05)
    assert await asyncio.wait_for(queue.take(), 5) == A
