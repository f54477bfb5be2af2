"""One reconcile: read what is, decide what should be, write what differs, say what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Final

from vlm_api.names import LABEL_COMPONENT, LABEL_PLAN
from vlm_api.status import VLMService, VLMServiceStatus
from vlm_operator import render
from vlm_operator.controller import reasons
from vlm_operator.controller.cache import Cache
from vlm_operator.controller.choosing import Chooser, Pods
from vlm_operator.controller.conclude import conclude, told
from vlm_operator.controller.drift import difference, told_before
from vlm_operator.controller.foreign import problem_of, service_in_the_way
from vlm_operator.controller.groups import missing_before, missing_pods, overdue
from vlm_operator.controller.inspecting import RETRY_SECONDS
from vlm_operator.controller.inventory import Inventory
from vlm_operator.controller.lasting import DEBOUNCE_SECONDS, Lasting
from vlm_operator.controller.live import (
    parse,
    parse_status,
    previous_plan,
    recorded_inspection,
    unreadable,
    word_for_word,
    workload_of,
)
from vlm_operator.controller.observed import Drift, Observed, Problem, replicas
from vlm_operator.controller.pods import PodView, view
from vlm_operator.controller.queue import Key
from vlm_operator.controller.reports import STARTING_SECONDS, Reports
from vlm_operator.controller.scaling import autoscaler_of, keep_count
from vlm_operator.errors import InvalidInput
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import Applied, Applier
from vlm_operator.kube.client import ApiError, Json
from vlm_operator.kube.events import Recorder
from vlm_operator.kube.ownership import is_owned, owner_reference
from vlm_operator.kube.revisions import revision, surplus
from vlm_operator.kube.status import StatusWriter
from vlm_operator.render.names import INSPECT

log = logging.getLogger(__name__)

# Everything comes by events; this is for the one that never came.
RESYNC_SECONDS: Final = 600.0
# A kind that the cluster lacks may be installed at any time, without an event.
MISSING_KIND_SECONDS: Final = 30.0
# Findings that refuse a plan for such a kind, or for a claim, which nobody watches.
UNTOLD: Final = frozenset({"LeaderWorkerSetMissing", "ClaimForOnePod"})
# Nothing tells how long an image is being pulled but its age.
PULLING_SECONDS: Final = 15.0
TIDY_SECONDS: Final = 0.5
# What says how many pods there are.
COUNTING: Final = ("Deployment", "LeaderWorkerSet", "HorizontalPodAutoscaler")
# Errors in a row that may pass by themselves until a service's status says so: 1 s + 2 s + 4 s, longer than a change of leader.
TOLD_AFTER_ERRORS: Final = 4
# A Job that ends wakes us; one that never starts does not.
INSPECTING_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Outcome:
    """What came of a reconcile. ``again_after_seconds`` is None where the service is gone."""

    again_after_seconds: float | None
    status: VLMServiceStatus | None = None


@dataclass
class Reconciler:
    """What a reconcile works with. Its parts may be used by several threads, each for another service."""

    cache: Cache
    chooser: Chooser
    applier: Applier
    recorder: Recorder
    status: StatusWriter
    inventory: Inventory
    reports: Reports
    site: render.Site = render.USUAL_SITE
    drifts: Lasting[Drift] = field(default_factory=Lasting)
    shortages: Lasting[str] = field(default_factory=Lasting)
    """Pods of groups that nobody makes."""
    errors: dict[Key, int] = field(default_factory=dict)
    """Errors of the API server in a row that may pass by themselves, by service."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def __call__(self, key: Key) -> Outcome:
        """Reconciles one service. Raises ApiError where the API server fails, so that it is tried again; where it goes on
        failing with objects of the service, that is in the status."""
        raw = self.cache.service(key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return Outcome(None)
        uid = raw["metadata"]["uid"]
        labelled = list(self.cache.of(key, (*kinds.OWNED, *kinds.OWNED_OPTIONAL, kinds.REVISION)))
        owned = _owned(labelled, uid)
        pods, jobs = self._pods(key), self._jobs(raw)
        try:
            service = parse(raw)
            seen = self._make_so(service, raw, labelled, jobs, pods)
        except InvalidInput as error:
            service = unreadable(raw)
            seen = Observed(invalid=error, inspection=recorded_inspection(raw), replicas=replicas(workload_of(owned)))
        engines, now = pods.engines, self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        previous = parse_status(raw)
        told = {c.type: c for c in previous.conditions} if previous else {}
        resource = service.spec.hardware.resource_name
        differs = difference(seen.plan, engines, lambda name: self.inventory.node(name, resource))
        drift, drifting = self.drifts.lasting(key, differs, told_before(told))
        workload = seen.workload or workload_of(owned)
        short = missing_pods(workload, engines)
        missing, shrinking = self.shortages.lasting(key, short, missing_before(told))
        seen = replace(
            seen,
            pods=engines,
            reports=self.reports.of(key, engines),
            drift=drift,
            missing=missing,
            replicas=replace(
                seen.replicas, overdue=seen.replicas.overdue or overdue(workload, seen.plan, engines, now)
            ),
            workload=workload,
            autoscaler=autoscaler_of(owned),
        )
        status = self._report(service, raw, seen, now)
        starting = any(p.running and not p.ready and not p.deleting for p in engines) or self.reports.unsettled(key)
        again = STARTING_SECONDS if starting else RESYNC_SECONDS
        if drifting or shrinking:
            again = min(again, DEBOUNCE_SECONDS * 1.2)  # the queue may be a tenth early
        if any(p.pulling for p in engines):
            again = min(again, PULLING_SECONDS)
        if seen.inspecting is not None:
            again = INSPECTING_SECONDS
        elif seen.inspection is not None and seen.inspection.failure is not None:
            again = min(again, RETRY_SECONDS)
        if seen.inspecting is None and any(not job["metadata"].get("deletionTimestamp") for job in jobs):
            # They are removed once the status has what they said, and the status is written now.
            again = TIDY_SECONDS
        if seen.problem is not None or _may_pass_untold(seen):
            again = min(again, MISSING_KIND_SECONDS)
        return Outcome(again, status)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        for memory in (self.reports, self.drifts, self.shortages):
            memory.forget(key)
        self.errors.pop(key, None)
        self.status.forget(key.namespace, key.name)

    def _make_so(self, service: VLMService, raw: Json, labelled: list[Json], jobs: list[Json], pods: Pods) -> Observed:
        """Plans and applies. Raises InvalidInput as ``make_plan`` does."""
        uid = raw["metadata"]["uid"]
        owned = _owned(labelled, uid)
        try:
            stored, seen = self.chooser.choose(service, raw, owned, jobs, pods)
        except InvalidInput:
            self._count_on(service, raw, labelled)
            raise
        except ApiError as error:
            unplanned = self._failed(_key(raw), error, "what a plan is made with")
            live, before = self._count_on(service, raw, labelled), previous_plan(owned)
            plan = before.plan if before is not None else None
            return Observed(plan=plan, problem=unplanned, inspection=recorded_inspection(raw), replicas=replicas(live))
        if seen.inspecting is not None and not any(o["kind"] == kinds.NETWORK_POLICY.kind for o in owned):
            # The Job's pod needs its way out where a namespace closes all of them.
            self.applier.apply(render.policy_before_plan(service, owner_reference(raw), self.site), labelled, uid)
        if stored is None or stored.plan.errors:
            live = self._count_on(service, raw, labelled)
            return replace(seen, replicas=replicas(live))
        manifests = render.objects(stored.plan, stored.pod_template, service, owner_reference(raw), self.site)
        manifests = keep_count(word_for_word(manifests, owned) if seen.kept else manifests, owned, service)
        try:
            history = [o for o in labelled if is_owned(o, uid) and o["kind"] == kinds.REVISION.kind]
            present = revision(raw, stored.plan.spec_digest, stored.plan.hash, history, owner_reference(raw))
            done = self.applier.apply([*manifests, present], labelled, uid)
            if not done.taken:
                unwanted = self._unwanted(manifests, owned, raw, pods.engines)
                self.applier.remove([*unwanted, *surplus(history, present["metadata"]["name"])], done)
        except ApiError as error:
            refused = self._failed(_key(raw), error, "an object")
            return replace(seen, problem=refused, replicas=replicas(workload_of(owned)))
        self.errors.pop(_key(raw), None)
        self._tell_done(raw, done)
        now = list({(o["kind"], o["metadata"]["name"]): o for o in (*owned, *done.live)}.values())
        workload = workload_of(now, manifests)
        numbers = replicas(workload)
        problem = problem_of(done, service.name)
        if problem is None and numbers.available == 0:
            problem = service_in_the_way(workload, self._services_named_like(workload))
        return replace(seen, problem=problem, replicas=numbers, workload=workload)

    def _services_named_like(self, workload: Json | None) -> list[Json]:
        """Services of the VLMService whose name is the group's, if there is one."""
        if workload is None or workload["kind"] != kinds.LEADER_WORKER_SET.kind:
            return []
        metadata = workload["metadata"]
        return list(self.cache.of(Key(metadata["namespace"], metadata["name"]), [kinds.SERVICE]))

    def _count_on(self, service: VLMService, raw: Json, labelled: list[Json]) -> Json | None:
        """While no new plan is in force, pods of the one before stay as they are, but how many is still decided: by
        ``suspend``, ``replicas`` or an autoscaler. Returns their workload."""
        uid = raw["metadata"]["uid"]
        owned = _owned(labelled, uid)
        previous = previous_plan(owned)
        if previous is None:
            return workload_of(owned)
        manifests = render.objects(previous.plan, previous.pod_template, service, owner_reference(raw), self.site)
        manifests = [m for m in keep_count(manifests, owned, service) if m["kind"] in COUNTING]
        wanted = {(m["kind"], m["metadata"]["name"]) for m in manifests}
        unwanted = [o for o in owned if o["kind"] in COUNTING and (o["kind"], o["metadata"]["name"]) not in wanted]
        try:
            done = self.applier.apply(manifests, labelled, uid)
            if not done.taken:
                self.applier.remove(unwanted, done)
        except ApiError as error:
            self._insists(_key(raw), error)
            # What the status says of the spec is to be mended first.
            log.warning("%s: the number of pods stays as it is: %s", raw["metadata"]["name"], error.message)
            return workload_of(owned)
        self.errors.pop(_key(raw), None)
        self._tell_done(raw, done)
        return workload_of([*done.live, *owned])

    def _failed(self, key: Key, error: ApiError, what: str) -> Problem:
        """Raises the error again while it may pass by itself."""
        self._insists(key, error)
        if error.refused:
            return Problem(reasons.NOT_APPLIED, f"the API server refused {what}: {error.message}")
        return Problem(reasons.NOT_APPLIED, f"the API server fails with {what} and is asked again: {error.message}")

    def _insists(self, key: Key, error: ApiError) -> None:
        """Returns where the API server refuses, or fails again and again; raises the error while it may pass by itself."""
        if error.refused or error.status == 0:
            self.errors.pop(key, None)
        if error.status == 0:
            raise error  # nobody there, who could not be told either
        if not error.refused:
            self.errors[key] = self.errors.get(key, 0) + 1
            if self.errors[key] < TOLD_AFTER_ERRORS:
                raise error

    def _jobs(self, raw: Json) -> list[Json]:
        uid = raw["metadata"]["uid"]
        return [j for j in self.cache.of(_key(raw), [kinds.JOB]) if is_owned(j, uid)]

    def _pods(self, key: Key) -> Pods:
        found = list(self.cache.of(key, [kinds.POD]))
        inspecting = [p for p in found if p["metadata"]["labels"].get(LABEL_COMPONENT) == INSPECT]
        return Pods([view(p) for p in found if p not in inspecting], inspecting)

    def _unwanted(self, manifests: list[Json], owned: list[Json], raw: Json, pods: list[PodView]) -> list[Json]:
        """Objects of ours that nothing asks for: not the spec, and for plans and claims no pod and no older revision."""
        wanted = {(m["kind"], m["metadata"]["name"]) for m in manifests}
        unwanted = [o for o in owned if (o["kind"], o["metadata"]["name"]) not in wanted]
        if any(o["kind"] in ("ConfigMap", "ResourceClaimTemplate") for o in unwanted):
            grouped = any(m["kind"] == kinds.LEADER_WORKER_SET.kind for m in manifests)
            used = self._plans_in_use(raw, pods, grouped=grouped)
            unwanted = [
                o
                for o in unwanted
                if o["kind"] not in ("ConfigMap", "ResourceClaimTemplate")
                or o["metadata"]["labels"].get(LABEL_PLAN) not in used
            ]
        return unwanted

    def _plans_in_use(self, raw: Json, pods: list[PodView], *, grouped: bool) -> set[str]:
        """Hashes of the plans that a pod runs or may be made of: by a roll-back, or in a group that a roll-out has not
        reached and that lost its pods."""
        found = self.cache.of(_key(raw), [kinds.REPLICA_SET])
        made_of = [r["spec"]["template"]["metadata"].get("labels") or {} for r in found]
        if grouped:
            made_of += [r["metadata"]["labels"] for r in self.cache.of(_key(raw), [kinds.REVISION])]
        return {p.plan_hash for p in pods} | {str(labels.get(LABEL_PLAN)) for labels in made_of}

    def _report(self, service: VLMService, raw: Json, seen: Observed, now: str) -> VLMServiceStatus:
        previous = parse_status(raw)
        status = conclude(service, seen, previous, now)
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


def _owned(labelled: list[Json], uid: str) -> list[Json]:
    """What a service is made of now, without its history."""
    return [o for o in labelled if is_owned(o, uid) and o["kind"] != kinds.REVISION.kind]


def _may_pass_untold(seen: Observed) -> bool:
    """Whether what refuses the plan may go without an event. All else goes with the spec, the model or a node, of which
    there is one; and to plan anew reads the cluster's pods."""
    return seen.plan is not None and any(error.reason in UNTOLD for error in seen.plan.errors)


def _key(raw: Json) -> Key:
    return Key(raw["metadata"]["namespace"], raw["metadata"]["name"])
