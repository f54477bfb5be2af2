"""How long the engine has stood still, and how long it may. Pure.

Ending an engine that is only slow costs more than ending a hung one a little later: every doubt favours the engine.
"""

from dataclasses import dataclass
from typing import Final

from vlm_api.plan import ServingPlan
from vlm_runtime.sglang.command import watchdog_seconds
from vlm_runtime.sglang.engine_metrics import Progress

# Shorter silence is ordinary: a burst of images, a step of a long prefill, a kernel compiled at its first use.
SHORTEST_SECONDS: Final = 120.0
_AFTER_WATCHDOG_SECONDS: Final = 30.0
# From then on other replicas should get the requests.
UNREADY_SECONDS: Final = 60.0
# Below this share of one core, a process is idle: threads that only look at the clock use less.
IDLE_SHARE: Final = 0.05


@dataclass(frozen=True)
class StallLimits:
    """How long an engine may stand still before it counts as hung, in seconds."""

    idle: float
    """While its processes do not compute."""
    busy: float
    """While they do: a long step, kernels being compiled, weights being replaced."""

    @property
    def unready(self) -> float:
        """After how much silence requests should go elsewhere."""
        return min(UNREADY_SECONDS, self.idle / 2)


def stall_limits(plan: ServingPlan) -> StallLimits:
    """Idle: two minutes, or the longest declared request, since no step outlasts a whole request.

    Busy: at least as long as a whole start, because new weights may be loaded at runtime; and longer than the engine's
    own watchdog, which knows and logs more.
    """
    idle = max(SHORTEST_SECONDS, float(plan.runtime.drain_seconds))
    watchdog = watchdog_seconds(plan.engine.args)
    return StallLimits(idle, max(idle, float(plan.runtime.startup_budget_seconds), watchdog + _AFTER_WATCHDOG_SECONDS))


@dataclass(frozen=True)
class Observation:
    """The engine at one moment."""

    at: float
    """When it was asked, in seconds of a monotonic clock."""
    answered: bool
    """The schedulers answered."""
    excused: bool = False
    """The engine says that it is paused, or proved in another way that it works."""
    progress: Progress | None = None
    """None: not asked, or not answered."""


class StallTimer:
    """Measures for how long nothing has moved."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._unanswered_since: float | None = None
        self._last: Progress | None = None

    def add(self, observation: Observation) -> None:
        """One observation, later than those before it."""
        moved = observation.excused or self._has_moved(observation)
        self._last = observation.progress or self._last
        self._since = None if moved else observation.at if self._since is None else self._since
        if observation.answered or moved:
            self._unanswered_since = None
        elif self._unanswered_since is None:
            self._unanswered_since = observation.at

    def reset(self) -> None:
        """The engine has proved that it works."""
        self._since = self._unanswered_since = None

    def stalled_seconds(self, now: float) -> float:
        """How long nothing has moved; 0 if it moves."""
        return 0.0 if self._since is None else now - self._since

    def unanswered_seconds(self, now: float) -> float:
        """How long the schedulers have neither answered nor computed anything; 0 if they do."""
        return 0.0 if self._unanswered_since is None else now - self._unanswered_since

    def _has_moved(self, observation: Observation) -> bool:
        progress = observation.progress
        if progress and self._last and progress.computed != self._last.computed:
            return True
        known = progress or self._last
        return observation.answered and (known is None or known.in_flight <= 0)
