"""What a reconcile observed of one service: plain data, so that the status is a pure function of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vlm_api.inspection import Inspection
from vlm_api.names import MAIN_POOL
from vlm_api.plan import Role, ServingPlan
from vlm_api.report import Report
from vlm_api.spec import VLMServiceSpec
from vlm_api.status import ConditionStatus
from vlm_operator.controller.status.pods import PodView
from vlm_operator.controller.status.replicas import Replicas
from vlm_operator.errors import InvalidInput

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


class Verdict(NamedTuple):
    """A condition without its type and times."""

    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True)
class Drift:
    """A difference between a node and the plan."""

    reason: str
    message: str


@dataclass(frozen=True)
class Problem:
    """Something outside the plan that keeps objects of the service from being created or changed."""

    reason: str
    message: str


@dataclass(frozen=True)
class PoolObservation:
    """One pool: everything that its conditions follow from."""

    spec: VLMServiceSpec
    """The pool's own spec: the service's fields, with the pool's in their place."""
    name: str = MAIN_POOL
    role: Role = Role.SERVE
    plan: ServingPlan | None = None
    """The plan in force, or the refused one; None if the spec is invalid, or while the first plan waits for facts."""
    invalid: InvalidInput | None = None
    problem: Problem | None = None
    inspecting: str | None = None
    """What planning waits for while a Job reads the model's files."""
    inspection: Inspection | None = None
    """What was read from the model's files."""
    workload: Mapping[str, Any] | None = None
    """The live Deployment or LeaderWorkerSet."""
    replicas: Replicas = field(default_factory=Replicas)
    autoscaler: Mapping[str, Any] | None = None
    """The live HorizontalPodAutoscaler."""
    pods: Sequence[PodView] = ()
    reports: Mapping[str, Report] = field(default_factory=dict)
    """The runtimes' reports by pod."""
    drift: Drift | None = None
    """A lasting difference between the plan and a node of its pods."""
    missing: str | None = None
    """Which pods of its groups have not been created for a while."""
    debouncing: bool = False
    """Whether ``drift`` or ``missing`` may change soon without an event."""

    @property
    def current_pods(self) -> list[PodView]:
        """Pods of the plan in force by name, without those that are being deleted."""
        plan_hash = self.plan.hash if self.plan else ""
        return sorted((p for p in self.pods if not p.deleting and p.plan_hash == plan_hash), key=lambda p: p.name)

    @property
    def desired_replicas(self) -> int:
        """Requested replicas: the live workload's number if it exists, since an autoscaler may have set it."""
        if self.workload is not None:
            return self.replicas.wanted
        if self.spec.suspend:
            return 0
        if self.spec.scaling is not None:
            return self.spec.scaling.min_replicas
        return 1 if self.spec.replicas is None else self.spec.replicas


@dataclass(frozen=True)
class Observation:
    """One service: at least one pool."""

    pools: tuple[PoolObservation, ...]
    router: Replicas | None = None
    """The routers, if the service's address is theirs."""

    @property
    def shown(self) -> PoolObservation:
        """The pool whose plan, startup and settings the status shows: ``main``, else the first that serves."""
        return min(self.pools, key=lambda p: (p.name != MAIN_POOL, p.role is not Role.SERVE))

    @property
    def serving(self) -> list[PoolObservation]:
        """The pools that answer requests: the status counts their replicas."""
        return [p for p in self.pools if p.role is Role.SERVE]

    @property
    def judged(self) -> list[PoolObservation]:
        """The pools that conditions are about: suspended ones only if there are no others."""
        return [p for p in self.pools if not p.spec.suspend] or list(self.pools)
