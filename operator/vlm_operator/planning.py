"""From a service and the cluster's facts to a plan, and whether the plan in force stays.

Pure: the same input gives the same plan, byte for byte.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from vlm_api.plan import (
    ExpectedHardware,
    Finding,
    PlanEngine,
    PlanHardware,
    PlanMemory,
    PlanResources,
    PlanRuntime,
    ServiceRef,
    ServingPlan,
    Severity,
    Sharing,
)
from vlm_api.spec import Device, VLMServiceSpec
from vlm_api.status import VLMService
from vlm_operator import memory, render, template
from vlm_operator.engines.choices import user_choices
from vlm_operator.engines.selection import select_engine
from vlm_operator.facts.architectures import architecture
from vlm_operator.facts.models import as_quantised, model_facts
from vlm_operator.facts.types import ClaimFacts, GpuFacts, ModelFacts, NodeFacts
from vlm_operator.profiles import Family, family_of, shipped
from vlm_operator.resolve import findings as notes
from vlm_operator.resolve.budget import Budget, budget, host_cache_mib, pool_mib
from vlm_operator.resolve.claims import claim_findings
from vlm_operator.resolve.command import command_line, environment
from vlm_operator.resolve.context import Context, Declared
from vlm_operator.resolve.disk import disk, downloaded_mib, group_downloads
from vlm_operator.resolve.fit import fit_findings
from vlm_operator.resolve.hardware import UNTOLD, Choice, choose_hardware
from vlm_operator.resolve.pipeline import resolve
from vlm_operator.resolve.pod_memory import limit_findings, node_findings
from vlm_operator.resolve.ranks import rank_count, whole_copies
from vlm_operator.resolve.releases import release_findings
from vlm_operator.resolve.resizing import declared_image
from vlm_operator.resolve.rules.vision import vision_findings
from vlm_operator.resolve.rules.workload import images_in_flight
from vlm_operator.resolve.splits import split_findings
from vlm_operator.resolve.startup import startup_budget
from vlm_operator.spec_digest import spec_digest

SHOWN_NODES = 64
WORST_FIRST = tuple(Severity)


@dataclass(frozen=True)
class Cluster:
    """What a plan may know of the cluster."""

    nodes: tuple[NodeFacts, ...] = ()
    in_use: Mapping[str, int] = field(default_factory=dict)
    """Devices asked for by pods, per node, without the service's own pods."""
    has_leader_worker_sets: bool = True
    network_policies: bool = True
    """Whether NetworkPolicies are made at all."""
    claims: Mapping[str, ClaimFacts] = field(default_factory=dict)
    """PersistentVolumeClaims of the service's namespace by name, as far as they could be read."""


@dataclass(frozen=True)
class StoredPlan:
    """A plan and the pod template that was made from it: what the ConfigMap NAME-plan-HASH holds."""

    plan: ServingPlan
    pod_template: dict[str, Any]


def make_plan(
    service: VLMService,
    cluster: Cluster,
    *,
    runtime_image: str,
    inspected: ModelFacts | Finding | None = None,
    families: Sequence[Family] | None = None,
) -> ServingPlan:
    """Decides everything for one service. The plan has no hash and no manifests yet.

    ``inspected`` is what the model's own files say, or the finding that tells why they could not be read; ``families``
    are the measured sets, by default those that are shipped.

    Raises InvalidInput for a spec that is wrong whatever the cluster looks like.
    """
    spec = service.spec
    template_findings = template.check(spec.template)
    engine, image, engine_findings = select_engine(spec.engine)
    choices = user_choices(spec, engine)
    read = inspected if isinstance(inspected, ModelFacts) else None
    model = as_quantised(model_facts(spec.model, read), choices.get("quantization"))
    family = family_of(model.architecture, shipped() if families is None else families)
    cuda = spec.hardware.device is Device.CUDA
    devices = rank_count(spec, choices) // spec.multinode.node_count
    on_no_gpu = Context(
        service=service,
        engine=engine,
        choices=choices,
        gpu=None,
        model=model,
        family=family,
        image=declared_image(spec, family, choices),
        devices_per_pod=devices if cuda else 0,
        network_policies=cluster.network_policies,
    )
    choice = Choice(None, source="spec")
    if cuda:
        choice = choose_hardware(spec, devices, cluster.nodes, cluster.in_use, partial(_rank, on_no_gpu))
    gpu = choice.chosen.gpu if choice.chosen is not None else choice.wished
    context = replace(on_no_gpu, gpu=gpu)
    declared, findings = resolve(context)
    total = budget(context, declared)
    pool = pool_mib(context, declared)
    findings = [
        *template_findings,
        *engine_findings,
        *choice.findings,
        *([inspected] if isinstance(inspected, Finding) else []),
        *notes.model_findings(context, read),
        *vision_findings(context, declared),
        *notes.driver_findings(image, gpu),
        *release_findings(context, declared),
        *notes.virtual_gpu_findings(context, declared),
        *notes.shared_gpu_findings(context),
        *findings,
        *fit_findings(context, declared, total, pool),
        *notes.group_findings(spec, cluster.has_leader_worker_sets),
        *notes.shared_memory_findings(context),
        *split_findings(context, declared),
    ]
    sums = _plan_memory(context, declared, total, pool)
    nodes = choice.chosen.nodes if choice.chosen is not None else ()
    findings += limit_findings(spec.template, sums.host_memory_mib or 0)
    findings += node_findings(spec.template, sums.host_memory_mib or 0, nodes)
    downloaded = downloaded_mib(context)
    disk_mib, disk_findings = disk(spec.template, downloaded, nodes, sure=model.evidence is not None)
    findings += [*disk_findings, *group_downloads(downloaded, spec.multinode.node_count)]
    findings += claim_findings(spec, cluster.claims, nodes, context.devices_per_pod)
    settings = list(declared)
    return ServingPlan(
        service=ServiceRef(name=service.name, namespace=service.namespace),
        spec_digest=spec_digest(spec),
        engine=PlanEngine(
            version=engine.version,
            image=image,
            args=command_line(context, settings),
            env=environment(context, settings),
        ),
        hardware=_plan_hardware(spec, choice, gpu),
        settings=settings,
        memory=sums,
        resources=PlanResources(
            devices_per_pod=context.devices_per_pod,
            pods=spec.multinode.node_count,
            ephemeral_storage_mib=disk_mib,
        ),
        runtime=_plan_runtime(service, runtime_image, context, gpu),
        findings=sorted(findings, key=lambda f: (WORST_FIRST.index(f.severity), f.reason, f.message)),
    )


def seal(plan: ServingPlan, service: VLMService) -> StoredPlan:
    """The plan with its hash, and the pod template that it stands for."""
    # In one order, whatever the order in which the user wrote the template's fields.
    pods = json.loads(render.stored(render.pod_template(plan, service)))
    return StoredPlan(plan.model_copy(update={"hash": render.plan_hash(plan, pods)}), pods)


def plan_with_manifests(
    service: VLMService, cluster: Cluster, *, runtime_image: str, families: Sequence[Family] | None = None
) -> ServingPlan:
    """The whole plan, as it is printed: with its hash and every object that would be applied; none after an Error."""
    plan = make_plan(service, cluster, runtime_image=runtime_image, families=families)
    if plan.errors:
        return plan
    stored = seal(plan, service)
    objects = render.objects(stored.plan, stored.pod_template, service, None)
    return stored.plan.model_copy(update={"manifests": objects})


def stays(
    previous: StoredPlan, spec: VLMServiceSpec, cluster: Cluster, *, scheduled: bool, ready: bool, mismatch: bool
) -> bool:
    """Whether the plan in force does: while the spec says the same, its pods have a node and found what was planned.

    So neither an upgrade of the operator nor a label that flips replaces a pod that serves. One plan gives way before a
    pod serves: the one for GPUs of which nothing was known, as soon as something is. When a cluster scales from zero,
    the pod is on the first GPU node before that node's labels tell what it should have been planned with.
    """
    if previous.plan.spec_digest != spec_digest(spec) or not scheduled or mismatch:
        return False
    return ready or not _made_blindly(previous.plan) or not _sees_now(previous.plan, spec, cluster)


def _made_blindly(plan: ServingPlan) -> bool:
    hardware = plan.hardware
    return hardware.device == Device.CUDA.value and (hardware.source in UNTOLD or not hardware.nodes)


def _sees_now(plan: ServingPlan, spec: VLMServiceSpec, cluster: Cluster) -> bool:
    devices = plan.resources.devices_per_pod
    choice = choose_hardware(spec, devices, cluster.nodes, cluster.in_use, lambda gpu: (gpu.source in UNTOLD,))
    return choice.chosen is not None and choice.source not in UNTOLD


def _rank(context: Context, gpu: GpuFacts) -> tuple[int, int]:
    """How well a GPU suits, smaller is better: whether the plan for it would fit into its memory, whether it has a profile."""
    context = replace(context, gpu=gpu)
    return _fits(context), 0 if context.profile is not None else 1


def _fits(context: Context) -> int:
    """0 where the plan fits, 1 where that is not known or not sure, 2 where it does not."""
    declared, _ = resolve(context)
    total = budget(context, declared)
    if total.device_mib is None or total.weights_mib is None:
        return 1
    found = fit_findings(context, declared, total, pool_mib(context, declared))
    if any(f.severity is Severity.ERROR for f in found):
        return 2
    return 1 if any(f.reason in ("MemoryTight", "LoadingNotChecked") for f in found) else 0


def _plan_hardware(spec: VLMServiceSpec, choice: Choice, gpu: GpuFacts | None) -> PlanHardware:
    if spec.hardware.device is Device.CPU:
        return PlanHardware(device="cpu", source="spec")
    claims = gpu is not None and gpu.claims
    nodes = choice.chosen.nodes if choice.chosen is not None else ()
    capability = gpu.compute_capability if gpu is not None else None
    return PlanHardware(
        device="cuda",
        compute_capability=str(capability) if capability else None,
        architecture=architecture(capability),
        product=gpu.product if gpu else None,
        memory_mib=gpu.memory_mib if gpu else None,
        driver=_driver(choice) if gpu else None,
        devices_per_node=gpu.devices or None if gpu else None,
        sharing=gpu.sharing if gpu else Sharing.NONE,
        source=choice.source,
        resource_name=None if claims else spec.hardware.resource_name,
        claims=claims,
        match_labels=dict(sorted(gpu.match_labels.items())) if gpu else {},
        avoid_labels={key: list(values)[:SHOWN_NODES] for key, values in choice.avoid_labels.items()},
        nodes=[n.name for n in nodes[:SHOWN_NODES]],
        passed_over=list(choice.passed_over[:SHOWN_NODES]),
    )


def _driver(choice: Choice) -> str | None:
    """The driver of all nodes of the class; nodes may be upgraded one after the other."""
    drivers = {n.gpu.driver if n.gpu else None for n in choice.chosen.nodes} if choice.chosen is not None else set()
    return drivers.pop() if len(drivers) == 1 else None


def _plan_memory(context: Context, declared: Declared, total: Budget, pool: int) -> PlanMemory:
    image, images = context.image, images_in_flight(context)
    pinned = images * image.bytes / 2 / memory.MIB if images and image and context.cuda else 0
    travelling = images * image.bytes / memory.MIB if images and image else 0
    left, devices = total.kv_beside_mib(pool), max(context.devices_per_pod, 1)
    each = memory.HOST_PER_DEVICE_MIB + total.offloaded_mib + host_cache_mib(declared, max(left or 0, 0))
    host = memory.HOST_BASE_MIB + each * devices + pinned + travelling
    if not context.cuda:
        host += (memory.weights_mib(context.model, 1) or 0) * whole_copies(context.spec, context.choices)
    return PlanMemory(
        image_bytes=image.bytes if image else None,
        image_tokens=image.tokens if image else None,
        feature_pool_mib=pool or None,
        embedding_cache_mib=total.embedding_cache_mib if context.cuda else None,
        shared_memory_mib=notes.shared_memory_mib(context),
        weights_mib=total.weights_mib,
        kv_cache_mib=None if left is None else max(left, 0),
        # The pool's second time too: it is memory that the KV cache does not get.
        reserved_mib=None if total.reserved_mib is None else total.reserved_mib + pool * (total.pool_times - 1),
        host_memory_mib=math.ceil(host / 256) * 256,
    )


def _plan_runtime(service: VLMService, image: str, context: Context, gpu: GpuFacts | None) -> PlanRuntime:
    spec = service.spec
    budgeted = startup_budget(spec.model.uri, memory.weights_mib(context.model, 1), spec.multinode.node_count)
    capability = gpu.compute_capability if gpu else None
    return PlanRuntime(
        image=image,
        served_model_name=spec.model.name or service.name,
        startup_budget_seconds=budgeted.seconds,
        startup_reason=budgeted.reason,
        drain_seconds=spec.workload.max_request_seconds,
        hardware=ExpectedHardware(
            device=spec.hardware.device.value,
            devices=context.devices_per_pod,
            compute_capability=str(capability) if capability else None,
            memory_mib=gpu.memory_mib if gpu else None,
            mig=gpu is not None and gpu.sharing is Sharing.MIG,
        ),
        nodes=spec.multinode.node_count,
    )
