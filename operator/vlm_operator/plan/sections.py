"""Parts of a plan: what it says about the engine, hardware, memory and the runtime."""

import math
from typing import Final

from vlm_api.limits import RequestLimits, request_limits
from vlm_api.plan import (
    MAX_SETTINGS,
    MAX_WORDS,
    ExpectedHardware,
    PlanEngine,
    PlanHardware,
    PlanMemory,
    PlanResources,
    PlanRuntime,
    Sharing,
)
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.nodes.products import architecture
from vlm_operator.placement.choose import Choice
from vlm_operator.placement.downloads import requested_disk_mib
from vlm_operator.plan.request import PoolRequest
from vlm_operator.plan.startup_budget import startup_budget
from vlm_operator.sglang import memory
from vlm_operator.sglang.budget import Budget, host_cache_mib
from vlm_operator.sglang.command import command_line, environment
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.ranks import request_groups, whole_copies

SHOWN_NODES: Final = 64
# Videos whose frames are decoded at the same time: SGLang prepares two requests at once (auto_mm_processor_worker_num).
DECODED_AT_ONCE: Final = 2


def plan_engine(request: PoolRequest, context: Context, declared: Declared) -> PlanEngine:
    """The engine's command line and environment."""
    settings = list(declared)
    args = command_line(context, settings)
    _refuse_too_many(context, len(args), MAX_WORDS, "words of command line")
    _refuse_too_many(context, len(settings), MAX_SETTINGS, "settings")
    return PlanEngine(
        version=request.engine.version,
        image=request.image,
        args=args,
        env=environment(context, settings),
    )


def _refuse_too_many(context: Context, count: int, most: int, what: str) -> None:
    """The user's longest list is what to shorten; without one, there are too many settings."""
    if count <= most:
        return
    lists = [choice for choice in context.choices.settings.values() if isinstance(choice.value, list)]
    longest = max(lists, key=lambda choice: len(choice.value), default=None)
    path = longest.path if longest else "spec.engine"
    raise InvalidInput(path, f"the engine would get {count:,} {what}, at most {most:,} are possible: set fewer")


def plan_resources(context: Context, choice: Choice) -> PlanResources:
    """What one replica takes."""
    return PlanResources(
        devices_per_pod=context.devices_per_pod,
        pods=context.spec.multinode.node_count,
        ephemeral_storage_mib=requested_disk_mib(context, choice.nodes),
    )


def plan_hardware(context: Context, choice: Choice) -> PlanHardware:
    """The hardware that the plan was made for."""
    if not context.cuda:
        return PlanHardware(device="cpu", source="spec")
    gpu = context.gpu
    claims = gpu is not None and gpu.claims
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
        resource_name=None if claims else context.spec.hardware.resource_name,
        claims=claims,
        match_labels=dict(sorted(gpu.match_labels.items())) if gpu else {},
        avoid_labels={key: list(values)[:SHOWN_NODES] for key, values in choice.avoid_labels.items()},
        nodes=[n.name for n in choice.nodes[:SHOWN_NODES]],
        passed_over=list(choice.passed_over[:SHOWN_NODES]),
    )


def _driver(choice: Choice) -> str | None:
    """The driver of all nodes of the class; nodes may be upgraded one after the other."""
    drivers = {node.gpu.driver if node.gpu else None for node in choice.nodes}
    return drivers.pop() if len(drivers) == 1 else None


def plan_memory(context: Context, declared: Declared, total: Budget, pool: int) -> PlanMemory:
    """The memory sum of one device, and of the pod. ``pool``: the feature pool in MiB."""
    image, video, flight = context.image, context.video, context.in_flight
    pinned = flight.feature_bytes / 2 / memory.MIB if flight and context.cuda else 0
    travelling = flight.travelling_bytes if flight else 0
    decoded = DECODED_AT_ONCE * video.decoded_bytes if video else 0
    left, devices = total.kv_beside_mib(pool), max(context.devices_per_pod, 1)
    each = memory.HOST_PER_DEVICE_MIB + total.offloaded_mib + host_cache_mib(declared, max(left or 0, 0))
    host = memory.HOST_BASE_MIB + each * devices + pinned + (travelling + decoded) / memory.MIB
    if not context.cuda:
        host += (memory.weights_mib(context.model, 1) or 0) * whole_copies(context.spec, context.choices)
    return PlanMemory(
        image_bytes=image.bytes if image else None,
        image_extra_bytes=image.extra_bytes if image else None,
        image_tokens=image.tokens if image else None,
        image_prompt_tokens=image.prompt_tokens if image else None,
        video_frames=video.frames if video else None,
        video_bytes=video.bytes if video else None,
        video_tokens=video.tokens if video else None,
        video_prompt_tokens=video.prompt_tokens if video else None,
        feature_pool_mib=pool or None,
        embedding_cache_mib=total.embedding_cache_mib if context.cuda else None,
        shared_memory_mib=memory.shared_memory_mib(
            cuda=context.cuda,
            devices_in_pod=devices,
            travelling_bytes=travelling,
        ),
        weights_mib=total.weights_mib,
        kv_cache_mib=None if left is None else max(left, 0),
        requests=_requests(context, declared, total, left),
        # The pool's second time too: it is memory that the KV cache does not get.
        reserved_mib=None if total.reserved_mib is None else total.reserved_mib + pool * (total.pool_times - 1),
        host_memory_mib=math.ceil(host / 256) * 256,
    )


def _requests(context: Context, declared: Declared, total: Budget, left: int | None) -> int | None:
    """Declared requests that one replica's memory holds at once."""
    if left is None or left <= 0 or not context.cuda:
        return None
    held = (context.held or total.held(left)).requests
    return None if held is None else held * request_groups(context, declared)


def plan_runtime(image: str, context: Context) -> PlanRuntime:
    """What the runtime in the pod needs beside the engine's command line. ``image`` brings the runtime."""
    spec, gpu = context.spec, context.gpu
    start = startup_budget(spec.model.uri, memory.weights_mib(context.model, 1), spec.multinode.node_count)
    capability = gpu.compute_capability if gpu else None
    allowed = context.choices.settings.get("limit_mm_data_per_request")
    given = allowed.value if allowed is not None and isinstance(allowed.value, dict) else {}
    limits = request_limits(spec.workload, {key: value for key, value in given.items() if isinstance(value, int)})
    return PlanRuntime(
        image=image,
        served_model_name=context.served_model_name,
        startup_budget_seconds=start.seconds,
        startup_reason=start.reason,
        drain_seconds=spec.workload.max_request_seconds,
        hardware=ExpectedHardware(
            device=spec.hardware.device.value,
            devices=context.devices_per_pod,
            compute_capability=str(capability) if capability else None,
            memory_mib=gpu.memory_mib if gpu else None,
            mig=gpu is not None and gpu.sharing is Sharing.MIG,
        ),
        nodes=spec.multinode.node_count,
        limits=limits if limits != RequestLimits() else None,
    )
