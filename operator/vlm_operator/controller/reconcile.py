"""One reconcile: read what is, decide what should be, write what differs, say what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Final

from vlm_api.names import LABEL_PLAN, LABEL_SERVICE
from vlm_api.plan import ServingPlan
from vlm_api.status import Condition, VLMService, VLMServiceStatus
from vlm_operator import render
from vlm_operator.controller import reasons
from vlm_operator.controller.conclude import conclude, told
from vlm_operator.controller.inventory import Inventory
from vlm_operator.controller.live import parse, parse_status, previous_plan, unreadable, workload_of
from vlm_operator.controller.observed import Observed, Problem, replicas
from vlm_operator.controller.pods import PodView, view
from vlm_operator.controller.queue import Key
from vlm_operator.controller.reports import STARTING_SECONDS, Reports
from vlm_operator.controller.usage import Usage
from vlm_operator.errors import InvalidInput
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import Applied, Applier
from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.events import Recorder
from vlm_operator.kube.ownership import is_owned, owner_reference
from vlm_operator.kube.status import StatusWriter
from vlm_operator.planning import Cluster, choose

log = logging.getLogger(__name__)

# Everything comes by events; this is for the one that never came.
RESYNC_SECONDS: Final = 600.0
# A kind that the cluster lacks may be installed at any time, without an event.
MISSING_KIND_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Outcome:
    """What came of a reconcile. ``again_after_seconds`` is None where the service is gone."""

    again_after_seconds: float | None
    conditions: Sequence[Condition] = ()


@dataclass
class Reconciler:
    """What a reconcile works with. Its parts may be used by several threads, each for another service."""

    client: Client
    applier: Applier
    recorder: Recorder
    status: StatusWriter
    inventory: Inventory
    usage: Usage
    runtime_image: str
    reports: Reports
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def __call__(self, key: Key) -> Outcome:
        """Reconciles one service. Raises ApiError where the API server fails, so that it is tried again."""
        raw = self.client.get(kinds.VLM_SERVICE, key.namespace, key.name)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return Outcome(None)
        owned, pods = list(self._owned(raw)), self._pods(key)
        try:
            service = parse(raw)
            seen = self._make_so(service, raw, owned, pods)
        except InvalidInput as error:
            service, seen = unreadable(raw), Observed(invalid=error, replicas=replicas(workload_of(owned)))
        labels = {p.node: found for p in pods if p.node and (found := self.inventory.labels(p.node)) is not None}
        seen = replace(seen, pods=pods, reports=self.reports.of(key, pods), node_labels=labels)
        status = self._report(service, raw, seen)
        starting = any(p.running and not p.ready and not p.deleting for p in pods)
        again = STARTING_SECONDS if starting else RESYNC_SECONDS
        if seen.problem is not None or (seen.plan is not None and seen.plan.errors):
            again = min(again, MISSING_KIND_SECONDS)
        return Outcome(again, status.conditions)

    def _make_so(self, service: VLMService, raw: Json, owned: list[Json], pods: list[PodView]) -> Observed:
        """Plans and applies. Raises InvalidInput as ``choose`` does."""
        plan, template = self._choose(service, owned, pods)
        if plan.errors:
            return Observed(plan=plan, replicas=replicas(workload_of(owned)))
        manifests = render.objects(plan, template, service, owner_reference(raw))
        try:
            done = self.applier.apply(manifests, owned, raw["metadata"]["uid"])
            if not done.taken:
                self.applier.remove(self._unwanted(manifests, owned, raw, pods), done)
        except ApiError as error:
            if not error.refused:
                raise
            problem = Problem(reasons.NOT_APPLIED, f"the API server refused an object: {error.message}")
            return Observed(plan=plan, problem=problem, replicas=replicas(workload_of(owned)))
        self._tell_done(raw, done)
        if done.created or done.changed or done.deleted:
            owned = list(self._owned(raw))
        return Observed(plan=plan, problem=_problem(done), replicas=replicas(workload_of(owned, manifests)))

    def _choose(self, service: VLMService, owned: list[Json], pods: list[PodView]) -> tuple[ServingPlan, Json]:
        previous = previous_plan(owned)
        theirs = [p for p in pods if previous is not None and p.plan_hash == previous.plan.hash]
        cluster = Cluster(
            nodes=self.inventory.facts(service.spec.hardware.resource_name),
            in_use=self.usage.of(service.spec.hardware.resource_name, service.namespace, service.name),
            has_leader_worker_sets=self.client.serves(kinds.LEADER_WORKER_SET),
        )
        stored = choose(
            service,
            cluster,
            runtime_image=self.runtime_image,
            previous=previous,
            previous_scheduled=any(p.node and not p.deleting for p in theirs),
            mismatch=any(p.mismatch for p in theirs),
        )
        return stored.plan, stored.pod_template

    def _owned(self, raw: Json) -> Iterator[Json]:
        """Live objects of the service, of every kind that the cluster has."""
        metadata = raw["metadata"]
        for kind in (*kinds.OWNED, *kinds.OWNED_OPTIONAL):
            if kind in kinds.OWNED or self.client.serves(kind):
                found = self.client.list(kind, metadata["namespace"], labels=f"{LABEL_SERVICE}={metadata['name']}")
                yield from (o for o in found if is_owned(o, metadata["uid"]))

    def _pods(self, key: Key) -> list[PodView]:
        found = self.client.list(kinds.POD, key.namespace, labels=f"{LABEL_SERVICE}={key.name}")
        return [view(p) for p in found]

    def _unwanted(self, manifests: list[Json], owned: list[Json], raw: Json, pods: list[PodView]) -> list[Json]:
        """Objects of ours that nothing asks for: not the spec, and for plans and claims no pod and no older revision."""
        wanted = {(m["kind"], m["metadata"]["name"]) for m in manifests}
        unwanted = [o for o in owned if (o["kind"], o["metadata"]["name"]) not in wanted]
        if any(o["kind"] in ("ConfigMap", "ResourceClaimTemplate") for o in unwanted):
            used = self._plans_in_use(raw, pods)
            unwanted = [
                o
                for o in unwanted
                if o["kind"] not in ("ConfigMap", "ResourceClaimTemplate")
                or o["metadata"]["labels"].get(LABEL_PLAN) not in used
            ]
        return unwanted

    def _plans_in_use(self, raw: Json, pods: list[PodView]) -> set[str]:
        """Hashes of the plans that a pod runs or that a roll-back could bring back."""
        metadata = raw["metadata"]
        labels = f"{LABEL_SERVICE}={metadata['name']}"
        revisions = self.client.list(kinds.REPLICA_SET, metadata["namespace"], labels=labels)
        templates = (r["spec"]["template"]["metadata"].get("labels") or {} for r in revisions)
        return {p.plan_hash for p in pods} | {str(t.get(LABEL_PLAN)) for t in templates}

    def _report(self, service: VLMService, raw: Json, seen: Observed) -> VLMServiceStatus:
        previous = parse_status(raw)
        status = conclude(service, seen, previous, self.now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        self.status.write(raw, status.to_api())
        for kind, reason, note in told(previous, status):
            self.recorder.tell(raw, kind, reason, note)
        return status

    def _tell_done(self, raw: Json, done: Applied) -> None:
        workloads = [t for t in done.created if t.startswith(("Deployment/", "LeaderWorkerSet/"))]
        if workloads:
            self.recorder.tell(raw, "Normal", reasons.CREATED, f"made {', '.join(workloads)}")
        for verb, titles in (("created", done.created), ("changed", done.changed), ("deleted", done.deleted)):
            if titles:
                log.info("%s %s", verb, ", ".join(titles), extra={"service": raw["metadata"]["name"]})
        for kind in done.absent:
            if kind != kinds.LEADER_WORKER_SET.kind:
                note = f"the cluster does not know {kind}: install its controller, or take it out of the spec"
                self.recorder.tell(raw, "Warning", reasons.KIND_MISSING, note)


def _problem(done: Applied) -> Problem | None:
    if done.taken:
        return Problem(
            reasons.NAME_TAKEN,
            f"{', '.join(done.taken)} exists and belongs to somebody else: delete it, or give the service another name",
        )
    if kinds.LEADER_WORKER_SET.kind in done.absent:
        return Problem(reasons.KIND_MISSING, "the cluster has no LeaderWorkerSet: install its controller")
    return None
