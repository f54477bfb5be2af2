"""Everything live of one service, read once per reconcile: nothing else searches the cache for "the" Deployment."""

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from pydantic import ValidationError

from vlm_api.inspection import Inspection
from vlm_api.names import LABEL_COMPONENT, LABEL_PLAN, LABEL_POOL, MAIN_POOL, PLAN_KEY, POD_TEMPLATE_KEY, ROUTER
from vlm_api.plan import ServingPlan
from vlm_api.pools import PoolSpec
from vlm_api.problems import problems
from vlm_api.report import Report
from vlm_api.spec import ModelSpec, VLMServiceSpec
from vlm_api.status import VLMService, VLMServiceStatus
from vlm_operator.controller.run.cache import Cache
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service.reports import Reports
from vlm_operator.controller.status.pods import PodView, view
from vlm_operator.errors import InvalidInput
from vlm_operator.kube import kinds
from vlm_operator.kube.client import Json
from vlm_operator.kube.ownership import is_owned, owner_reference
from vlm_operator.manifests.names import INSPECT, group_name, plan_name, pool_name
from vlm_operator.plan.request import PoolRequest, requests_of
from vlm_operator.plan.stored import StoredPlan

log = logging.getLogger(__name__)

WORKLOADS: Final = tuple(kind.kind for kind in kinds.WORKLOADS)


@dataclass(frozen=True)
class LivePool:
    """What a pool asks for, and what exists of it."""

    request: PoolRequest
    workload: Json | None = None
    """Its Deployment or LeaderWorkerSet."""
    stored: StoredPlan | None = None
    """The plan in force: the one that the workload's pods are made from."""
    autoscaler: Json | None = None
    pods: Sequence[PodView] = ()
    reports: Mapping[str, Report] = field(default_factory=dict)
    """The runtimes' reports by pod."""
    inspection: Inspection | None = None
    """What the status records of the files of its model."""
    namesakes: Sequence[Json] = ()
    """Services of another VLMService that bear the name of this pool's LeaderWorkerSet."""

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.request.pool


@dataclass(frozen=True)
class LiveService:
    """A VLMService and everything that exists of it."""

    key: Key
    raw: Json
    """The VLMService as it was read."""
    service: VLMService
    """The same, parsed; a stand-in with its names if ``invalid`` is set."""
    pools: tuple[LivePool, ...]
    """At least one."""
    invalid: InvalidInput | None = None
    """Why the spec cannot be parsed."""
    previous: VLMServiceStatus | None = None
    """The status so far; None if there is none, or it cannot be parsed."""
    labelled: Sequence[Json] = ()
    """Objects with the service's label, whoever owns them."""
    pods: Sequence[PodView] = ()
    """The engine's pods of all pools, also of those that the spec no longer has."""
    jobs: Sequence[Json] = ()
    """Jobs of the service that read its model's files."""
    job_pods: Sequence[Json] = ()
    replica_sets: Sequence[Json] = ()
    reports_unsettled: bool = False
    """Whether a pod that serves has not reported its settings yet, and may do so soon."""

    @property
    def uid(self) -> str:
        """The VLMService's uid."""
        return str(self.raw["metadata"]["uid"])

    @property
    def owner(self) -> Json:
        """The owner reference for its objects."""
        return owner_reference(self.raw)

    @cached_property
    def owned(self) -> list[Json]:
        """The objects that the service consists of, without its history."""
        return [o for o in self.labelled if is_owned(o, self.uid) and o["kind"] != kinds.REVISION.kind]

    @cached_property
    def history(self) -> list[Json]:
        """Its ControllerRevisions."""
        return [o for o in self.labelled if is_owned(o, self.uid) and o["kind"] == kinds.REVISION.kind]


def gather(cache: Cache, reports: Reports, key: Key) -> LiveService | None:
    """What exists of a service; None if it is gone or being deleted. Asks pods for reports that are due."""
    raw = cache.service(key)
    if raw is None or raw["metadata"].get("deletionTimestamp"):
        return None
    invalid = None
    try:
        service = parse(raw)
        requests = requests_of(service)
    except InvalidInput as error:
        service, invalid = _stand_in(raw), error
        requests = requests_of(service)
    uid = raw["metadata"]["uid"]
    labelled = list(cache.of(key, (*kinds.OWNED, *kinds.OWNED_OPTIONAL, kinds.REVISION)))
    pods = [p for p in cache.of(key, [kinds.POD]) if p["metadata"]["labels"].get(LABEL_COMPONENT) != ROUTER]
    job_pods = [p for p in pods if p["metadata"]["labels"].get(LABEL_COMPONENT) == INSPECT]
    views = [(pool_of(p["metadata"]), view(p)) for p in pods if p not in job_pods]
    reported = reports.of(key, [pod for _, pod in views])
    owned = [o for o in labelled if is_owned(o, uid)]
    pools = []
    for request in requests:
        group = Key(key.namespace, group_name(request.service, request.pool))
        mine = [pod for pool, pod in views if pool == request.pool]
        pool = live_pool(request, owned, mine, reported, cache.of(group, [kinds.SERVICE]))
        pools.append(replace(pool, inspection=recorded_inspection(raw, request.pool)))
    return LiveService(
        key=key,
        raw=raw,
        service=service,
        pools=tuple(pools),
        invalid=invalid,
        previous=parse_status(raw),
        labelled=labelled,
        pods=[pod for _, pod in views],
        jobs=[j for j in cache.of(key, [kinds.JOB]) if is_owned(j, uid)],
        job_pods=job_pods,
        replica_sets=list(cache.of(key, [kinds.REPLICA_SET])),
        reports_unsettled=reports.unsettled(key),
    )


def live_pool(
    request: PoolRequest,
    owned: Sequence[Json],
    pods: Sequence[PodView] = (),
    reports: Mapping[str, Report] | None = None,
    namesakes: Iterable[Json] = (),
) -> LivePool:
    """The objects of one pool among those that the service owns, found by their names: anyone can edit labels."""
    name = pool_name(request.service, request.pool)
    names = dict(zip(WORKLOADS, (name, group_name(request.service, request.pool)), strict=True))
    workloads = (o for o in owned if names.get(o["kind"]) == o["metadata"]["name"])
    workload = next((o for o in workloads if pool_of(template_of(o)["metadata"]) == request.pool), None)
    scalers = (o for o in owned if o["kind"] == kinds.AUTOSCALER.kind and o["metadata"]["name"] == name)
    here = {pod.name for pod in pods}
    return LivePool(
        request=request,
        workload=workload,
        stored=_stored_plan(request, workload, owned) if workload is not None else None,
        autoscaler=next(scalers, None),
        pods=pods,
        reports={pod: report for pod, report in (reports or {}).items() if pod in here},
        namesakes=list(namesakes),
    )


def pool_of(metadata: Mapping[str, Any]) -> str:
    """The pool that an object's label names. Objects from before there were pools have none."""
    return str((metadata.get("labels") or {}).get(LABEL_POOL) or MAIN_POOL)


def template_of(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod template of a Deployment or LeaderWorkerSet."""
    spec = workload["spec"]
    template: Mapping[str, Any] = spec.get("template") or spec["leaderWorkerTemplate"]["workerTemplate"]
    return template


def _stored_plan(request: PoolRequest, workload: Json, owned: Sequence[Json]) -> StoredPlan | None:
    """The plan of the workload's pods from its ConfigMap; None if that is missing, unreadable or of another service or pool.

    Fields that a newer operator has added are ignored, so that a downgrade works.
    """
    plan_hash = (template_of(workload)["metadata"].get("labels") or {}).get(LABEL_PLAN)
    name = plan_name(request.service, str(plan_hash))
    for config_map in owned:
        if config_map["kind"] == kinds.CONFIG_MAP.kind and config_map["metadata"]["name"] == name:
            data = config_map.get("data") or {}
            try:
                plan = ServingPlan.model_validate_json(data[PLAN_KEY], extra="ignore")
                stored = StoredPlan(plan, json.loads(data[POD_TEMPLATE_KEY]))
            except (KeyError, ValueError):
                log.warning("plan %s cannot be read: making a new one", plan_hash)
                return None
            of = (plan.service.name, plan.service.namespace, plan.pool, plan.role, plan.hash)
            if of == (request.service, request.namespace, request.pool, request.role, plan_hash):
                return stored
            log.warning("the ConfigMap %s holds a plan of something else: making a new one", name)
    return None


def parse(raw: Mapping[str, Any]) -> VLMService:
    """The live object as a VLMService, without its status. Raises InvalidInput with the first error."""
    try:
        return VLMService.model_validate({k: v for k, v in raw.items() if k != "status"})
    except ValidationError as error:
        first = problems(error, VLMService)[0]
        raise InvalidInput(first.path, first.message) from None


def parse_status(raw: Mapping[str, Any]) -> VLMServiceStatus | None:
    """The status, maybe of another version of the operator; None if it cannot be parsed."""
    try:
        return VLMServiceStatus.model_validate(raw["status"], extra="ignore") if raw.get("status") else None
    except ValidationError:
        return None


def recorded_inspection(raw: Mapping[str, Any], pool: str = MAIN_POOL) -> Inspection | None:
    """What the status records of the files of a pool's model, even if the rest of it cannot be parsed."""
    status = raw.get("status") or {}
    try:
        own = next((p.get("model") for p in status.get("pools") or [] if p.get("name") == pool), None)
        model = own or status.get("model")
        return Inspection.model_validate(model, extra="ignore") if model else None
    except ValidationError:
        return None


def _stand_in(raw: Json) -> VLMService:
    """A VLMService with the names of the object and its pools, for the status of a spec that cannot be parsed."""
    spec = VLMServiceSpec(model=ModelSpec(uri="file:///unknown"))
    with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
        pools = [PoolSpec(name=pool["name"]) for pool in raw["spec"].get("pools") or []]
        spec = VLMServiceSpec(model=spec.model, pools=pools)
    return VLMService.model_construct(metadata=raw["metadata"], spec=spec)
