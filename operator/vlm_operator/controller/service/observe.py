"""What the status is concluded from: live objects after the writes, with differences that have lasted."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from vlm_api import reasons
from vlm_api.reasons import Conditions
from vlm_operator.controller.run.inventory import Inventory
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service.act import Result
from vlm_operator.controller.service.choose import Choices, PoolChoice
from vlm_operator.controller.service.gather import LivePool, LiveService
from vlm_operator.controller.status.drift import difference, reported_drift
from vlm_operator.controller.status.observation import Drift, Observation, PoolObservation
from vlm_operator.controller.status.replicas import missing_pods, overdue, replicas

Value = TypeVar("Value")

# GPU feature discovery that restarts removes its labels for seconds; pods are created again within seconds.
DEBOUNCE_SECONDS: Final = 15.0


class Debouncer(Generic[Value]):
    """Reports a value only once it has lasted, and drops it only once it has been absent as long.

    In memory only: an operator that restarts begins with what the status reports, and waits once more.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reported: dict[Key, dict[str, Value | None]] = {}
        self._changed_at: dict[Key, dict[str, float]] = {}

    def debounce(self, key: Key, pool: str, observed: Value | None, first: Value | None) -> tuple[Value | None, bool]:
        """What to report, and whether that may change soon. ``first`` is what the status reports to begin with."""
        reported = self._reported.setdefault(key, {})
        changed_at = self._changed_at.setdefault(key, {})
        before = reported.setdefault(pool, first)
        has_changed = (observed is None) != (before is None)
        if has_changed and self._clock() - changed_at.setdefault(pool, self._clock()) < DEBOUNCE_SECONDS:
            return before, True
        changed_at.pop(pool, None)
        reported[pool] = observed
        return observed, False

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._reported.pop(key, None)
        self._changed_at.pop(key, None)


@dataclass
class Observer:
    """Turns live objects into observations. A service is observed by one thread at a time."""

    inventory: Inventory
    drifts: Debouncer[Drift] = field(default_factory=Debouncer)
    shortages: Debouncer[str] = field(default_factory=Debouncer)
    """Pods of groups that are not created."""

    def observe(self, live: LiveService, choices: Choices, result: Result, now: str) -> Observation:
        """The observation after the writes. ``now`` is RFC 3339 in UTC."""
        pairs = zip(live.pools, choices.pools, strict=True)
        return Observation(tuple(self._pool(live, choices, result, *pair, now) for pair in pairs), result.router)

    def _pool(
        self, live: LiveService, choices: Choices, result: Result, pool: LivePool, choice: PoolChoice, now: str
    ) -> PoolObservation:
        conditions = {c.type: c for c in live.previous.conditions} if live.previous and len(live.pools) == 1 else {}
        progressing = conditions.get(Conditions.PROGRESSING)
        shortage = progressing is not None and progressing.reason == reasons.PODS_MISSING
        workload = result.workloads.get(pool.name)
        resource = pool.request.spec.hardware.resource_name
        differs = difference(choice.plan, pool.pods, lambda name: self.inventory.node(name, resource))
        drift, drifting = self.drifts.debounce(live.key, pool.name, differs, reported_drift(conditions))
        missing, shrinking = self.shortages.debounce(
            live.key,
            pool.name,
            missing_pods(workload, pool.pods),
            progressing.message if progressing is not None and shortage else None,
        )
        return PoolObservation(
            spec=pool.request.spec,
            name=pool.name,
            role=pool.request.role,
            plan=choice.plan,
            invalid=choice.invalid,
            problem=choices.problem or result.problem,
            inspecting=choice.inspecting,
            inspection=choice.inspection,
            workload=workload,
            replicas=replicas(workload, overdue=overdue(workload, choice.plan, pool.pods, now)),
            autoscaler=pool.autoscaler,
            pods=pool.pods,
            reports=pool.reports,
            drift=drift,
            missing=missing,
            debouncing=drifting or shrinking,
        )

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self.drifts.forget(key)
        self.shortages.forget(key)
