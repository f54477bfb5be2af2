"""Which plan is in force: the one before, a new one, or none yet while the model's files are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from vlm_api.model import Inspection
from vlm_api.status import VLMService
from vlm_operator import render
from vlm_operator.controller.inspecting import Inspector, Waiting, inspected, worth_another_try
from vlm_operator.controller.inventory import Inventory
from vlm_operator.controller.live import parse_status, previous_plan, recorded_inspection
from vlm_operator.controller.observed import Observed
from vlm_operator.controller.pods import PodView
from vlm_operator.controller.usage import Usage
from vlm_operator.facts.claims import claim_facts
from vlm_operator.facts.types import ClaimFacts
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.planning import Cluster, StoredPlan, make_plan, seal, stays
from vlm_operator.profiles import Family
from vlm_operator.resolve.claims import shared_claims

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pods:
    """The pods of one service: its engines', and those that read its model's files."""

    engines: list[PodView]
    inspecting: list[Json]


@dataclass
class Chooser:
    """What a plan is made with. May be used by several threads, each for another service."""

    client: Client
    inventory: Inventory
    usage: Usage
    inspector: Inspector
    runtime_image: str
    families: Sequence[Family]
    site: render.Site = render.USUAL_SITE
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def choose(
        self, service: VLMService, raw: Json, owned: list[Json], jobs: list[Json], pods: Pods
    ) -> tuple[StoredPlan | None, Observed]:
        """The plan in force, the new one, or none while the model's files are read; and what the status says of it.

        ``owned`` are the live objects of the service, ``jobs`` those that read its model. Raises InvalidInput as
        ``make_plan`` does.
        """
        previous, recorded = previous_plan(owned), recorded_inspection(raw)
        kept = previous if previous is not None and self._stays(previous, service, pods.engines) else None
        known = self.inspector.known(service, recorded)
        again = known is not None and known.failure is not None and self._tries_again(raw, pods)
        if kept is not None and not again:
            self.inspector.tidy(jobs)
            return kept, Observed(plan=kept.plan, kept=True, inspection=recorded)
        found: Inspection | Waiting
        if known is not None and not again:
            self.inspector.tidy(jobs)
            found = known
        else:
            # What is wrong whatever the files say is said at once.
            draft = self._plan(service, Inspection())
            if draft.plan.errors:
                return draft, Observed(plan=draft.plan)
            found = self.inspector.look(service, raw, jobs, pods.inspecting, self.now())
        if isinstance(found, Waiting):
            shown = previous.plan if previous is not None else None
            return None, Observed(plan=shown, inspecting=found.message, inspection=recorded if again else None)
        if kept is not None and found.facts is None:
            return kept, Observed(plan=kept.plan, kept=True, inspection=found)
        stored = self._plan(service, found)
        return stored, Observed(plan=stored.plan, inspection=found)

    def _tries_again(self, raw: Json, pods: Pods) -> bool:
        return worth_another_try(parse_status(raw), pods.engines, self.now())

    def _stays(self, previous: StoredPlan, service: VLMService, pods: list[PodView]) -> bool:
        theirs = [p for p in pods if p.plan_hash == previous.plan.hash]
        here = [p for p in theirs if p.node and not p.deleting]
        return stays(
            previous,
            service.spec,
            self._cluster(service),
            scheduled=bool(here),
            ready=any(p.ready for p in here),
            mismatch=any(p.mismatch for p in theirs),
        )

    def _cluster(self, service: VLMService) -> Cluster:
        resource = service.spec.hardware.resource_name
        return Cluster(
            nodes=self.inventory.facts(resource),
            in_use=self.usage.of(resource, service.namespace, service.name),
            has_leader_worker_sets=self.client.serves(kinds.LEADER_WORKER_SET),
            network_policies=self.site.network_policies,
        )

    def _claims(self, service: VLMService) -> dict[str, ClaimFacts]:
        """Claims that several pods share, read each time: plans are seldom made. Those that cannot be read are left out."""
        found = {}
        for name in shared_claims(service.spec):
            try:
                claim = self.client.get(kinds.PERSISTENT_VOLUME_CLAIM, service.namespace, name)
            except ApiError as error:
                log.warning("the claim %s cannot be read: %s", name, error.message, extra={"service": service.name})
                continue
            if claim is not None:
                found[name] = claim_facts(claim)
        return found

    def _plan(self, service: VLMService, found: Inspection) -> StoredPlan:
        plan = make_plan(
            service,
            replace(self._cluster(service), claims=self._claims(service)),
            runtime_image=self.runtime_image,
            inspected=inspected(service, found),
            families=self.families,
        )
        return seal(plan, service)
