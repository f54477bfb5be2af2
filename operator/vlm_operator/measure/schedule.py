"""Which runs come one after the other: a warm-up for each target, then rounds in which the targets take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from vlm_operator.measure.load import Load

# Even, so that of two servers each is measured first as often as second.
ROUNDS: Final = 8
WARM_UP_WAVES: Final = 2
# A seed of the benchmark makes its images: none may be used twice, within a measurement or, by its start, between two.
SEEDS: Final = 2**31 - 1


@dataclass(frozen=True)
class Run:
    """One call of the benchmark."""

    number: int
    round: int
    """From 1; 0 is the warm-up."""
    target: int
    concurrency: int
    requests: int
    seed: int

    @property
    def counted(self) -> bool:
        """Whether it belongs to the result."""
        return self.round > 0

    def to_json(self) -> dict[str, Any]:
        """As the program in the pod reads and repeats it."""
        return asdict(self)


def schedule(load: Load, *, targets: int, rounds: int, first_seed: int) -> list[Run]:
    """Every run in its order. No two have the same seed.

    The warm-up is at the highest concurrency, where all graphs and kernels are used, and long enough that batches form as
    they do later. In even rounds targets and levels
    come the other way round, so that what drifts with time weighs on all of them alike.
    """
    found: list[Run] = []

    def add(number: int, target: int, concurrency: int, requests: int) -> None:
        seed = (first_seed + len(found)) % SEEDS
        found.append(Run(len(found), number, target, concurrency, requests, seed))

    most = max(load.concurrency)
    for target in range(targets):
        add(0, target, most, most * WARM_UP_WAVES)
    for number in range(1, rounds + 1):
        order: Sequence[int] = range(targets)
        levels: Sequence[int] = load.concurrency
        if number % 2 == 0:
            order, levels = list(reversed(order)), list(reversed(levels))
        for concurrency in levels:
            for target in order:
                add(number, target, concurrency, load.requests_at(concurrency))
    return found
