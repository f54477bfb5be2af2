"""Which plan each pool runs: the one in force, a new one, or none yet while the model's files are read."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from vlm_api.inspection import Inspection
from vlm_api.plan import ServingPlan
from vlm_api.reasons import UNREAD
from vlm_operator import manifests as render
from vlm_operator.checks import OF_SCALE
from vlm_operator.checks.shared_claims import claims_of, mounted_claims, shared_claims
from vlm_operator.controller.run.inventory import Inventory
from vlm_operator.controller.service.gather import LivePool, LiveService
from vlm_operator.controller.service.inspect_model import (
    Inspector,
    Waiting,
    inspected,
    is_refused,
    refusal_is_old,
    worth_another_try,
)
from vlm_operator.controller.service.usage import Usage
from vlm_operator.controller.status.observation import Problem
from vlm_operator.controller.status.pods import PodView
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.types import ClaimFacts, Cluster
from vlm_operator.facts.volume_claims import claim_facts
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client
from vlm_operator.manifests import inspection_digest
from vlm_operator.placement.choose import needs_usage
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.request import PoolRequest
from vlm_operator.plan.scale import at_scale
from vlm_operator.plan.sticky import stays
from vlm_operator.plan.stored import StoredPlan, seal
from vlm_operator.sglang.profiles import Family

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolChoice:
    """What was decided for one pool."""

    stored: StoredPlan | None = None
    """The plan to apply, or the refused one; None while there is none."""
    plan_reused: bool = False
    """Whether it is the plan in force, as it was stored."""
    shown: ServingPlan | None = None
    """The plan for the status if it is not ``stored`` as that is: the one in force, or with the findings of its scale now."""
    inspecting: str | None = None
    """What planning waits for while a Job reads the model's files."""
    inspection: Inspection | None = None
    """What was read from the model's files."""
    job: str | None = None
    """The Job whose answer is awaited, or not recorded in the status yet."""
    invalid: InvalidInput | None = None
    """Why the pool's spec is refused before any plan is made."""

    @property
    def plan(self) -> ServingPlan | None:
        """The plan for the status."""
        return self.stored.plan if self.stored is not None and self.shown is None else self.shown

    @property
    def applicable(self) -> StoredPlan | None:
        """The plan to apply, if it was not refused."""
        return self.stored if self.stored is not None and not self.stored.plan.errors else None


# What the Jobs have answered in this reconcile, by the digest of what they read.
Answers = dict[str, tuple[str, Inspection | Waiting]]


@dataclass(frozen=True)
class Choices:
    """What was decided for a service, its pools in the order of ``LiveService.pools``."""

    pools: tuple[PoolChoice, ...]
    problem: Problem | None = None
    """Why planning failed."""


def unplanned(live: LiveService, problem: Problem) -> Choices:
    """No decision: plans in force stay."""
    kept = (PoolChoice(shown=p.stored.plan if p.stored else None, inspection=p.inspection) for p in live.pools)
    return Choices(tuple(kept), problem=problem)


@dataclass
class Chooser:
    """What plans are made from. May be used by several threads, each for another service."""

    client: Client
    inventory: Inventory
    usage: Usage
    inspector: Inspector
    runtime_image: str
    families: Sequence[Family]
    site: render.Site = render.USUAL_SITE
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def choose(self, live: LiveService) -> Choices:
        """A plan for each pool. Raises ApiError if what a plan needs cannot be read."""
        answers: Answers = {}
        return Choices(tuple(self._of_pool(live, pool, answers) for pool in live.pools))

    def _of_pool(self, live: LiveService, pool: LivePool, answers: Answers) -> PoolChoice:
        invalid = live.invalid
        if invalid is None:
            try:
                return self._choose(live, pool, answers)
            except InvalidInput as error:
                invalid = pool.request.located(error)
        return PoolChoice(inspection=pool.inspection, invalid=invalid)

    def _choose(self, live: LiveService, pool: LivePool, answers: Answers) -> PoolChoice:
        request, recorded = pool.request, pool.inspection
        kept = pool.stored if pool.stored is not None and self._stays(pool.stored, pool) else None
        again = worth_another_try(live.previous, recorded, pool.pods, self.now())
        late = kept is not None and _facts_came_late(kept.plan, recorded, pool.pods)
        if kept is not None and not again and not late:
            return self._keep(kept, request, recorded)
        known, replaced = self.inspector.known(request, recorded), _replaced(pool)
        refused = known is not None and is_refused(known, replaced)
        again = again and known is not None and known.failure is not None
        again = again or (refused and refusal_is_old(live.previous, self.now()))
        if kept is not None and not again and not (late and known is not None):
            return self._keep(kept, request, recorded)
        if known is not None and not again:
            return PoolChoice(self._plan(request, known, replaced), inspection=known)
        # An error that does not depend on the model's files is reported at once.
        draft = self._plan(request, Inspection(), replaced)
        if draft.plan.errors:
            return PoolChoice(draft)
        job, answer = self._inspect(request, live, answers)
        if isinstance(answer, Waiting) and known is not None and refused:
            return PoolChoice(
                self._plan(request, known, replaced), inspecting=answer.message, inspection=known, job=job
            )
        if isinstance(answer, Waiting):
            shown = pool.stored.plan if pool.stored is not None else None
            inspection = recorded if again else None
            return PoolChoice(shown=shown, inspecting=answer.message, inspection=inspection, job=job)
        if kept is not None and answer.facts is None:
            return replace(self._keep(kept, request, answer), job=job)
        return PoolChoice(self._plan(request, answer, replaced), inspection=answer, job=job)

    def _inspect(self, request: PoolRequest, live: LiveService, answers: Answers) -> tuple[str, Inspection | Waiting]:
        """The answer of the model's Job, asked once for all pools that have the same model."""
        digest = inspection_digest(request)
        if digest not in answers:
            answers[digest] = self.inspector.inspect(request, live, self.now())
        return answers[digest]

    def _keep(self, kept: StoredPlan, request: PoolRequest, inspection: Inspection | None) -> PoolChoice:
        """The plan in force, and what its current scale means. Raises ApiError."""
        shown, spec = None, request.spec
        if shared_claims(spec) or spec.scaling is not None or any(f.reason in OF_SCALE for f in kept.plan.findings):
            nodes = self.inventory.facts(spec.hardware.resource_name)
            shown = at_scale(kept.plan, request, nodes, self._claims(request, None)[0])
        return PoolChoice(kept, plan_reused=True, shown=shown, inspection=inspection)

    def _stays(self, stored: StoredPlan, pool: LivePool) -> bool:
        of_plan = [p for p in pool.pods if p.plan_hash == stored.plan.hash]
        scheduled = [p for p in of_plan if p.node and not p.deleting]
        return stays(
            stored,
            pool.request,
            self.inventory.facts(pool.request.spec.hardware.resource_name),
            scheduled=bool(scheduled),
            ready=any(p.ready for p in scheduled),
            mismatch=any(p.mismatch for p in of_plan),
        )

    def _plan(self, request: PoolRequest, inspection: Inspection, replaced: StoredPlan | None) -> StoredPlan:
        plan = make_plan(
            request,
            self._cluster(request, replaced),
            runtime_image=self.runtime_image,
            inspected=inspected(request, inspection, replaced),
            families=self.families,
        )
        return seal(plan, request)

    def _cluster(self, request: PoolRequest, replaced: StoredPlan | None) -> Cluster:
        """What a new plan is made from. The cluster's pods are read only if the plan depends on them. Raises InvalidInput
        before anything is read."""
        resource = request.spec.hardware.resource_name
        nodes = self.inventory.facts(resource)
        depends = request.devices_per_pod > 0 and needs_usage(nodes)
        claims, missing = self._claims(request, replaced)
        return Cluster(
            nodes=nodes,
            in_use=self.usage.of(resource, request.namespace, request.service, request.pool) if depends else {},
            has_leader_worker_sets=self.client.serves(kinds.LEADER_WORKER_SET),
            network_policies=self.site.network_policies,
            claims=claims,
            missing_claims=missing,
        )

    def _claims(
        self, request: PoolRequest, replaced: StoredPlan | None
    ) -> tuple[dict[str, ClaimFacts], frozenset[str]]:
        """Claims that several pods share, and those that a change mounts and that do not exist: a new service waits for its
        claims. Those that the operator may not read are left out. Raises ApiError."""
        shared, claims, missing = shared_claims(request.spec), {}, set()
        added = (
            mounted_claims(request.spec).keys() - claims_of(replaced.pod_template) if replaced is not None else set()
        )
        for name in sorted(shared.keys() | added):
            try:
                claim = self.client.get(kinds.PERSISTENT_VOLUME_CLAIM, request.namespace, name)
            except ApiError as error:
                if error.status != 403:
                    raise
                log.warning("claim %s cannot be read: %s", name, error.message, extra={"service": request.service})
                continue
            if claim is not None:
                claims[name] = claim_facts(claim)
            if name in added and (claim is None or claim["metadata"].get("deletionTimestamp")):
                missing.add(name)
        return claims, frozenset(missing)


def _facts_came_late(plan: ServingPlan, recorded: Inspection | None, pods: Sequence[PodView]) -> bool:
    """Whether a plan in force was made without the model's files, which have been read since, and no pod serves: what they
    forbid must stay refused."""
    if recorded is None or recorded.facts is None or any(pod.ready for pod in pods):
        return False
    return any(finding.reason in UNREAD for finding in plan.findings)


def _replaced(pool: LivePool) -> StoredPlan | None:
    """The plan in force that a change of the spec would replace while its pods are wanted."""
    stored, spec = pool.stored, pool.request.spec
    if stored is None or stored.plan.spec_digest == pool.request.digest or spec.suspend or spec.replicas == 0:
        return None
    return stored
