"""Whether the engine hangs although it lives: from what it answers, produces and computes to one verdict. Pure.

Ending an engine that only works slowly costs more than ending one that hangs a little later: every doubt is in its favour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from vlm_api.plan import ServingPlan
from vlm_runtime.command import option

# Silence below this is ordinary: a burst of images, a step of a long prefill, a kernel compiled at its first use.
SHORTEST_SECONDS: Final = 120.0
# SGLang's default of --watchdog-timeout: its scheduler ends itself when one step takes longer, and shows its stacks.
WATCHDOG_SECONDS: Final = 300.0
_AFTER_WATCHDOG_SECONDS: Final = 30.0
# From then on other replicas had better take the requests.
UNREADY_SECONDS: Final = 60.0
# Below this share of one core, a process does nothing: threads that only look at the clock use less.
IDLE_SHARE: Final = 0.05

# Counters of SGLang that grow with every step, with every token, or with every request that ends.
_PRODUCED: Final = (
    b"sglang:prompt_tokens_total",
    b"sglang:generation_tokens_total",
    b"sglang:realtime_tokens_total",
    b"sglang:time_to_first_token_seconds_count",
    b"sglang:inter_token_latency_seconds_count",
)
_IN_FLIGHT: Final = (b"sglang:num_running_reqs", b"sglang:num_queue_reqs")


@dataclass(frozen=True)
class Patience:
    """How long an engine may stand still before it counts as hung, in seconds."""

    idle: float
    """While its processes do not compute."""
    busy: float
    """While they do: a long step, kernels being compiled, weights being replaced."""

    @property
    def unready(self) -> float:
        """After how much silence requests had better go elsewhere."""
        return min(UNREADY_SECONDS, self.idle / 2)


def patience(plan: ServingPlan) -> Patience:
    """Idle: two minutes, or the longest declared request, since no step of the engine outlasts a whole request.

    Busy: also as long as a whole start, because new weights may be loaded while it runs; and longer than the engine's
    own watchdog, which knows more than we do and says it.
    """
    idle = max(SHORTEST_SECONDS, float(plan.runtime.drain_seconds))
    watchdog = _number(option(plan.engine.args, "--watchdog-timeout")) or WATCHDOG_SECONDS
    return Patience(idle, max(idle, float(plan.runtime.startup_budget_seconds), watchdog + _AFTER_WATCHDOG_SECONDS))


@dataclass(frozen=True)
class Production:
    """What the engine's metrics say."""

    produced: float
    """Grows while anything is computed; its unit means nothing."""
    in_flight: float
    """Requests that run or wait."""


def read_production(exposition: bytes) -> Production | None:
    """Reads the engine's metrics in Prometheus' text format; None where they say nothing of tokens."""
    produced = in_flight = 0.0
    known = False
    for line in exposition.splitlines():
        if not line.startswith(b"sglang:"):
            continue
        name = line.partition(b"{")[0].partition(b" ")[0]
        if name in _PRODUCED:
            produced += _number(line.rpartition(b" ")[2]) or 0.0
        elif name in _IN_FLIGHT:
            known = True
            in_flight += _number(line.rpartition(b" ")[2]) or 0.0
    return Production(produced, in_flight) if known else None


@dataclass(frozen=True)
class Look:
    """What was seen of the engine at one moment."""

    at: float
    """When the question was asked, in seconds of a monotonic clock."""
    answered: bool
    """The schedulers answered."""
    excused: bool = False
    """The engine says that it is held by someone, or it proved otherwise that it works."""
    production: Production | None = None
    """None: not asked, or not told."""


class Stillness:
    """Remembers since when nothing has moved."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._unanswered_since: float | None = None
        self._last: Production | None = None

    def add(self, look: Look) -> None:
        """One look, later than those before it."""
        moved = look.excused or self._has_moved(look)
        self._last = look.production or self._last
        self._since = None if moved else look.at if self._since is None else self._since
        if look.answered or moved:
            self._unanswered_since = None
        elif self._unanswered_since is None:
            self._unanswered_since = look.at

    def forget(self) -> None:
        """It was proved that the engine works."""
        self._since = self._unanswered_since = None

    def seconds(self, now: float) -> float:
        """How long nothing has moved; 0 where it has."""
        return 0.0 if self._since is None else now - self._since

    def unanswered_seconds(self, now: float) -> float:
        """How long the schedulers have answered nothing, nor produced anything; 0 where they have."""
        return 0.0 if self._unanswered_since is None else now - self._unanswered_since

    def _has_moved(self, look: Look) -> bool:
        if look.production and self._last and look.production.produced != self._last.produced:
            return True
        known = look.production or self._last
        return look.answered and (known is None or known.in_flight <= 0)


def _number(text: str | bytes | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None
