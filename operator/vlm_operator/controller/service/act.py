"""Applies what was chosen: the objects of a service are created, changed and removed with as few requests as possible."""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vlm_api.names import LABEL_PLAN, LABEL_POOL, ROUTER
from vlm_api.status import VLMService
from vlm_operator import manifests as render
from vlm_operator.controller.service.choose import Choices
from vlm_operator.controller.service.choose_router import RouterChoice, choose_router
from vlm_operator.controller.service.gather import WORKLOADS, LivePool, LiveService, pool_of
from vlm_operator.controller.service.name_conflicts import hidden_group, problem_of
from vlm_operator.controller.status.observation import Problem
from vlm_operator.controller.status.replicas import Replicas, replicas
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import Applied, Applier, is_handed_over
from vlm_operator.kube.client import Json
from vlm_operator.manifests.objects import Pool
from vlm_operator.manifests.revision import revision, surplus
from vlm_operator.plan.request import digest_of_pools
from vlm_operator.plan.scale import is_number_refused

# What decides how many pods there are.
SCALING_KINDS: Final = (*WORKLOADS, kinds.AUTOSCALER.kind)
# Objects of one pool, also those from before pools had labels.
POOL_KINDS: Final = (
    *SCALING_KINDS,
    kinds.DISRUPTION_BUDGET.kind,
    kinds.CONFIG_MAP.kind,
    kinds.RESOURCE_CLAIM_TEMPLATE.kind,
)
# What pods refer to by a plan's hash, so it stays as long as such a pod may exist.
REFERRED_KINDS: Final = (kinds.CONFIG_MAP.kind, kinds.RESOURCE_CLAIM_TEMPLATE.kind)
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


NO_ROUTER: Final = RouterChoice()


@dataclass(frozen=True)
class Result:
    """What came of it."""

    applied: Applied = field(default_factory=Applied)
    workloads: Mapping[str, Json] = field(default_factory=dict)
    """The workloads of pools afterwards, by pool."""
    problem: Problem | None = None
    router: Replicas | None = None
    """The routers, if the service's address is theirs."""


def act(applier: Applier, live: LiveService, choices: Choices, site: render.Site) -> Result:
    """Makes the live objects what the choices and the spec ask for. Raises ApiError."""
    if live.invalid is not None:
        # The stand-in for the spec asks for nothing: how many replicas it should be is not known either.
        return Result(workloads=_workloads(live, [], Applied()))
    router = choose_router(live, choices)
    manifests, history, outdated = wanted(live, choices, site, router), [], []
    planned = [choice.applicable.plan for choice in choices.pools if choice.applicable is not None]
    if planned:
        digest = digest_of_pools([pool.request for pool in live.pools])
        history = [revision(live.raw, digest, planned[0].hash, live.history, live.owner)]
        outdated = surplus(live.history, history[0]["metadata"]["name"])
    applied = applier.apply([*manifests, *history], live.labelled, live.uid)
    if not applied.taken:
        applier.remove([*unwanted(live, choices, manifests, router), *outdated], applied)
    workloads = _workloads(live, manifests, applied)
    return Result(
        applied,
        workloads,
        (_problem(live, workloads, applied) or router.problem) if planned else None,
        replicas(workloads.get(ROUTER)) if router.part is not None and router.part.answers else None,
    )


def wanted(live: LiveService, choices: Choices, site: render.Site, router: RouterChoice = NO_ROUTER) -> list[Json]:
    """The objects to apply. A pool without a new plan is held: its pods stay, and only their number follows the spec."""
    held, reused, pools = _held(live, choices), set(), []
    for pool, choice in zip(live.pools, choices.pools, strict=True):
        stored = choice.applicable or pool.stored
        if stored is not None:
            pools.append(Pool(stored.plan, stored.pod_template, pool.request))
            reused |= {stored.plan.hash} if choice.plan_reused else set()
    manifests = render.objects(pools, live.owner, site, router.part) if pools else []
    there = {(o["kind"], o["metadata"]["name"]) for o in live.owned}
    manifests = [m for m in manifests if not router.keeps(m) or (m["kind"], m["metadata"]["name"]) not in there]
    manifests = [m for m in manifests if m["kind"] in SCALING_KINDS or not _is_held(m, held, live)]
    manifests = [_as_stored(m, live.owned) if _plan_of(m) in reused else m for m in manifests]
    for pool, choice in zip(live.pools, choices.pools, strict=True):
        refused = is_number_refused(choice.plan)
        manifests = keep_number(manifests, pool) if refused else keep_replicas(manifests, pool, live.service)
    if any(c.inspecting for c in choices.pools) and all(
        o["kind"] != kinds.NETWORK_POLICY.kind for o in [*live.owned, *manifests]
    ):
        # If the namespace denies all traffic, the inspection Job needs the policy before there is a plan.
        requests = [pool.request for pool in live.pools]
        manifests = [*render.policy_before_plan(requests, live.owner, site), *manifests]
    return manifests


def unwanted(
    live: LiveService, choices: Choices, manifests: Sequence[Json], router: RouterChoice = NO_ROUTER
) -> list[Json]:
    """Objects of ours that neither the spec nor, for plans and claim templates, a pod or an older revision needs."""
    held, names = _held(live, choices), {(m["kind"], m["metadata"]["name"]) for m in manifests}
    scaled = held & {pool.name for pool in live.pools if pool.stored is not None}
    extra = [o for o in live.owned if (o["kind"], o["metadata"]["name"]) not in names and not router.keeps(o)]
    extra = [
        o
        for o in extra
        if not _is_held(o, held, live) or (o["kind"] in SCALING_KINDS and pool_of(o["metadata"]) in scaled)
    ]
    refused = {p.name for p, c in zip(live.pools, choices.pools, strict=True) if is_number_refused(c.plan)}
    scaling = {pool.name for pool in live.pools if pool.request.spec.scaling is not None}
    extra = [o for o in extra if o["kind"] != kinds.AUTOSCALER.kind or pool_of(o["metadata"]) not in refused & scaling]
    if any(o["kind"] in REFERRED_KINDS for o in extra):
        grouped = any(m["kind"] == kinds.LEADER_WORKER_SET.kind for m in manifests)
        used = _plans_in_use(live, grouped=grouped)
        extra = [o for o in extra if o["kind"] not in REFERRED_KINDS or _plan_of(o) not in used]
    return extra


def keep_number(manifests: list[Json], pool: LivePool) -> list[Json]:
    """The same objects for a pool whose requested replicas are forbidden: it gets no more than it has, its autoscaler is not
    touched, and everything else becomes what the spec asks for."""
    manifests = [m for m in manifests if m["kind"] != kinds.AUTOSCALER.kind or pool_of(m["metadata"]) != pool.name]
    if pool.workload is None:
        return manifests
    name = (pool.workload["kind"], pool.workload["metadata"]["name"])
    most = pool.workload["spec"].get("replicas", 1)
    return [
        {**m, "spec": {**m["spec"], "replicas": min(most, m["spec"]["replicas"])}}
        if (m["kind"], m["metadata"]["name"]) == name and "replicas" in m["spec"]
        else m
        for m in manifests
    ]


def keep_replicas(manifests: list[Json], pool: LivePool, service: VLMService) -> list[Json]:
    """The same objects, without ``replicas`` in the pool's workload if an autoscaler of ours has set it and the spec does not.

    So a service whose ``scaling`` is removed keeps the replicas that serve until its spec says a number.
    """
    spec, live = pool.request.spec, pool.workload
    if live is None or spec.suspend or spec.scaling is not None or sets_replicas(service, pool):
        return manifests
    if pool.autoscaler is None and not is_handed_over(live):
        return manifests
    name = (live["kind"], live["metadata"]["name"])
    return [_without_replicas(m) if (m["kind"], m["metadata"]["name"]) == name else m for m in manifests]


def sets_replicas(service: VLMService, pool: LivePool) -> bool:
    """Whether somebody has set the pool's number of replicas. In a service without pools, the API server's default of 1 looks
    the same as a 1 in the spec.

    What a client has applied decides: by its managed fields, or by the annotation of a client-side ``kubectl apply``. Whoever
    creates an object owns all of its fields, defaults too, and with them the model, which every service has; a later change
    owns what it has changed.
    """
    if pool.request.declared is not None:
        return pool.request.spec.replicas is not None
    if service.spec.replicas not in (None, 1):
        return True
    metadata = service.metadata
    applied = (metadata.get("annotations") or {}).get(LAST_APPLIED)
    if applied is not None:
        with contextlib.suppress(ValueError, AttributeError):
            if "replicas" in (json.loads(applied).get("spec") or {}):
                return True
    entries = metadata.get("managedFields") or []
    fields = [(e.get("operation"), (e.get("fieldsV1") or {}).get("f:spec") or {}) for e in entries]
    return any("f:replicas" in f and (operation == "Apply" or "f:model" not in f) for operation, f in fields)


def _held(live: LiveService, choices: Choices) -> set[str]:
    """The pools without a new plan."""
    return {pool.name for pool, choice in zip(live.pools, choices.pools, strict=True) if choice.applicable is None}


def _is_held(manifest: Mapping[str, Any], held: set[str], live: LiveService) -> bool:
    """Whether an object stays as it is: its pool is held, or, if it belongs to none that the spec has, all pools are."""
    metadata = manifest["metadata"]
    in_pool = manifest["kind"] in POOL_KINDS or LABEL_POOL in (metadata.get("labels") or {})
    if in_pool and pool_of(metadata) in (pool.name for pool in live.pools):
        return pool_of(metadata) in held
    return len(held) == len(live.pools)


def _as_stored(manifest: Json, owned: Iterable[Json]) -> Json:
    """A plan's ConfigMap as it was written, maybe by another release.

    It is immutable: other bytes would mean to delete it first, and an operator that stops in between has lost the plan.
    """
    name = (manifest["kind"], manifest["metadata"]["name"])
    data = next((o.get("data") for o in owned if (o["kind"], o["metadata"]["name"]) == name), None)
    return {**manifest, "data": data} if manifest["kind"] == kinds.CONFIG_MAP.kind and data else manifest


def _plans_in_use(live: LiveService, *, grouped: bool) -> set[str]:
    """Hashes of plans that a pod runs or may be created from: by a rollback, or in a group that a rollout has not reached."""
    labels = [r["spec"]["template"]["metadata"].get("labels") or {} for r in live.replica_sets]
    if grouped:
        labels += [r["metadata"].get("labels") or {} for r in live.history]
    return {pod.plan_hash for pod in live.pods} | {str(of.get(LABEL_PLAN)) for of in labels}


def _plan_of(manifest: Mapping[str, Any]) -> str:
    return str((manifest["metadata"].get("labels") or {}).get(LABEL_PLAN))


def _workloads(live: LiveService, manifests: Sequence[Json], applied: Applied) -> dict[str, Json]:
    """Each pool's workload after the writes: the requested one, else the one that was there."""
    objects = {(o["kind"], o["metadata"]["name"]): o for o in (*live.owned, *applied.live)}
    after = {pool.name: pool.workload for pool in live.pools if pool.workload is not None}
    for manifest in manifests:
        name = (manifest["kind"], manifest["metadata"]["name"])
        if manifest["kind"] in WORKLOADS and name in objects:
            after[pool_of(manifest["metadata"])] = objects[name]
    return after


def _problem(live: LiveService, workloads: Mapping[str, Json], applied: Applied) -> Problem | None:
    if problem := problem_of(applied, live.service.name):
        return problem
    for pool in live.pools:
        workload = workloads.get(pool.name)
        if replicas(workload).available == 0 and (problem := hidden_group(workload, pool.namesakes)):
            return problem
    return None


def _without_replicas(manifest: Json) -> Json:
    return {**manifest, "spec": {k: v for k, v in manifest["spec"].items() if k != "replicas"}}
