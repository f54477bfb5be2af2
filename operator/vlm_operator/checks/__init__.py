"""What is wrong with the input, and findings about the plan. These tuples are the table of contents."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding
from vlm_api.reasons import FindingReason
from vlm_operator.checks import (
    arguments,
    control,
    engine,
    exposure,
    feature_pool,
    fit,
    hardware,
    model,
    pod,
    shared_claims,
    speculation,
    splits,
    template,
    traffic,
    videos,
)
from vlm_operator.checks.types import Check, InputCheck, ScaleCheck, ScaleInput, SizeCheck
from vlm_operator.checks.types import CheckInput as CheckInput
from vlm_operator.sglang.context import Context, Declared

INPUT_CHECKS: Final[tuple[InputCheck, ...]] = (
    template.misspelt_fields,
    arguments.transport,
    arguments.graph_sizes,
    arguments.client_access,
    arguments.tokenizer_workers_with_key,
    arguments.other_servers,
    arguments.foreign_devices,
    arguments.json_shapes,
    arguments.rank_groups,
    arguments.chunk_size,
    speculation.spread,
    speculation.drafts,
    arguments.half_certificates,
    arguments.attention_backends,
    exposure.metadata_services,
)

SIZE_CHECKS: Final[tuple[SizeCheck, ...]] = (pod.limit_below_request,)

CHECKS: Final[tuple[Check, ...]] = (
    # The input
    template.unknown_fields,
    # The model
    model.identity,
    model.size,
    model.takes_images,
    # The hardware
    hardware.image_for_gpus,
    hardware.processors,
    hardware.capabilities,
    hardware.virtual_gpus,
    hardware.shared_gpus,
    # The engine
    engine.known_bugs,
    engine.measured_elsewhere,
    engine.small_decode_graph,
    engine.unused_cuda_ipc,
    engine.certificate_for_loopback,
    # Memory
    fit.memory,
    feature_pool.room,
    feature_pool.capped,
    feature_pool.users,
    feature_pool.balance,
    feature_pool.embedding_cache,
    splits.even,
    splits.unchecked,
    # The traffic
    traffic.request_length,
    traffic.context_length,
    traffic.media_per_request,
    videos.videos,
    videos.on_gpu,
    traffic.images_enforced,
    # The pods
    pod.shared_memory,
    pod.memory_limit,
    pod.node_memory,
    pod.disk_limit,
    pod.node_disk,
    pod.group_downloads,
    shared_claims.missing,
    # The cluster and its clients
    splits.group_controller,
    exposure.control_paths,
    control.other_servers,
    control.foreign_code,
    control.media_files,
    exposure.media_urls,
    exposure.media_inside,
    exposure.egress,
)

# What depends on replicas, scaling and rolloutStrategy. Checked again at each reconcile, as these are not part of a plan.
SCALE_CHECKS: Final[tuple[ScaleCheck, ...]] = (
    traffic.scaling_target,
    shared_claims.access_modes,
)
# The reasons of their findings.
OF_SCALE: Final = frozenset(
    {
        FindingReason.CLAIM_FOR_ONE_POD,
        FindingReason.CLAIM_ON_ONE_NODE,
        FindingReason.CLAIM_NOT_CHECKED,
        FindingReason.SCALES_LATE,
    }
)


def refuse_input(context: Context, declared: Declared) -> None:
    """Raises InvalidInput with the first thing that is wrong with the input on any cluster."""
    for check in INPUT_CHECKS:
        for problem in check(context, declared):
            raise problem


def findings_of(plan: CheckInput) -> Iterator[Finding]:
    """The findings of all checks. Raises InvalidInput if the input contradicts the plan's sizes."""
    for size_check in SIZE_CHECKS:
        for problem in size_check(plan):
            raise problem
    for check in CHECKS:
        yield from check(plan)
    running = plan.declared.value("max_running_requests")
    context, claims = plan.context, plan.cluster.claims
    yield from scale_findings(ScaleInput(context.spec, context.devices_per_pod, running, plan.nodes, claims))


def scale_findings(scale: ScaleInput) -> Iterator[Finding]:
    """The findings of all checks of the scale."""
    for check in SCALE_CHECKS:
        yield from check(scale)
