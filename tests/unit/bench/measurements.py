"""Rounds as the program in the pod tells them, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from vlm_bench.load.schedule import Load
from vlm_bench.statistics.result import Result
from vlm_bench.statistics.rounds import Answer, Round

LOAD = Load(input_tokens=128, output_tokens=128, images=1, width=512, height=512, concurrency=(8,))


def answers(count: int, ttft_ms: float = 100.0, tpot_ms: float = 10.0, tokens: int = 11) -> tuple[Answer, ...]:
    return (Answer(ttft_ms, tpot_ms, ttft_ms + tpot_ms * (tokens - 1), tokens),) * count


def round_at(
    number: int, target: int, seconds: float, *, concurrency: int = 8, count: int = 40, failed: int = 0
) -> Round:
    """``count`` requests in so many seconds, some of which failed."""
    return Round(
        number=number * 10 + target,
        round=number,
        target=target,
        concurrency=concurrency,
        requests=count,
        seconds=seconds,
        answers=answers(count - failed),
        errors={"connection refused": failed} if failed else {},
    )


def result(rounds: Sequence[Round], *targets: str, load: Load = LOAD, complete: bool = True) -> Result:
    return Result(
        service="qwen3-vl", command="kubectl vlm bench qwen3-vl", load=load, seed=7, targets=targets or ("qwen3-vl",),
        rounds=tuple(rounds), planned={"max_running_requests": 8}, complete=complete,
    )  # fmt: skip
