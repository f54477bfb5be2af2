"""The GPUs that were chosen against the engine's image, and what virtual and shared GPUs cannot do."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding, Sharing, error, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.facts.types import NodeFacts
from vlm_operator.placement.classes import named
from vlm_operator.sglang.capabilities import refusals
from vlm_operator.sglang.catalogue.engine_image import driver_cuda, image_architectures, image_cuda, other_hardware
from vlm_operator.sglang.catalogue.releases import known
from vlm_operator.sglang.transport import LEGACY_TRANSPORT, travels_by_cuda_ipc

IMAGE_PATH: Final = "spec.engine.image"


def image_for_gpus(plan: CheckInput) -> Iterator[Finding]:
    """An image that is built for a newer CUDA than the nodes' driver supports, or for other GPUs."""
    image, gpu = plan.image, plan.context.gpu
    if gpu is None:
        return
    if (word := other_hardware(image)) is not None:
        yield warning(
            FindingReason.IMAGE_FOR_OTHER_HARDWARE,
            f"image {image} is built for other hardware ({word}), and the pods get NVIDIA GPUs, which the engine would not "
            "find: choose an image without that word, or leave it out",
            IMAGE_PATH,
        )
        return
    needs = image_cuda(image)
    if needs is None:
        return
    older: str = known()["last_cuda_12"]["image"]
    instead = "choose an image for an older CUDA" + (f", such as {older}" if needs[0] == 13 else "")
    runs = gpu.cuda or driver_cuda(gpu.driver)
    built = f"image {image} is built for CUDA {needs[0]}.{needs[1]}"
    # Inside one CUDA major version an older driver runs newer minor versions (minor version compatibility).
    if runs is not None and runs[0] < needs[0]:
        driver = f"driver {gpu.driver}" if gpu.driver else "driver"
        yield warning(
            FindingReason.DRIVER_TOO_OLD,
            f"{built}, and the nodes' {driver} supports CUDA {runs[0]}.{runs[1]}: the engine does not start unless the image "
            "contains NVIDIA's forward compatibility package, which is for data-centre GPUs only; update the driver, or "
            f"{instead}",
            IMAGE_PATH,
        )


def processors(plan: CheckInput) -> Iterator[Finding]:
    """Nodes with processors that the image is not known to be built for: its programs would not start there."""
    built_for = image_architectures(plan.image)
    others = [node for node in plan.nodes if node.cpu_architecture not in built_for]
    if others:
        there, known_for = others[0].cpu_architecture, " and ".join(sorted(built_for))
        yield warning(
            FindingReason.IMAGE_FOR_OTHER_PROCESSORS,
            f"{counted_nodes(others)} {there} processors, and image {plan.image} is known for {known_for} only: if it is not "
            f"built for {there} as well, containers end with an exec format error; choose an image for {there}, or other nodes "
            "(label kubernetes.io/arch in spec.template)",
            IMAGE_PATH,
        )


def counted_nodes(nodes: list[NodeFacts]) -> str:
    """``node a has`` or ``3 nodes have``."""
    return f"node {nodes[0].name} has" if len(nodes) == 1 else f"{len(nodes)} nodes have"


def capabilities(plan: CheckInput) -> Iterator[Finding]:
    """What the engine does not run on these GPUs: an Error, or a Warning if its release is unknown."""
    gpu = plan.context.gpu
    tell = warning if plan.context.engine.version is None else error
    for refusal in refusals(plan.context, plan.declared):
        assert gpu is not None
        has = f"the GPUs ({named(gpu)}) have {gpu.compute_capability}"
        yield tell(refusal.reason, f"{refusal.clause}, and {has}: {refusal.step}", refusal.path)


def virtual_gpus(plan: CheckInput) -> Iterator[Finding]:
    """What a vGPU cannot do that a bare GPU can, if this plan needs it.

    Source: NVIDIA AI Enterprise, vGPU for Compute: peer-to-peer transfers only over NVLink, between time-sliced vGPUs that
    have all memory of their GPU, and never over PCIe.
    """
    context = plan.context
    if context.gpu is None or not context.gpu.virtual:
        return
    transport = context.choices.settings.get("mm_feature_transport") or context.choices.settings.get(LEGACY_TRANSPORT)
    what = "the GPUs are virtual (label nvidia.com/vgpu.present), so measured profiles, which are for bare GPUs, do not apply"
    if transport is not None and travels_by_cuda_ipc(plan.declared):
        yield warning(
            FindingReason.VIRTUAL_GPU,
            f"{what}. NVIDIA does not list CUDA IPC among the features of vGPUs, and the engine fails without it: remove it",
            transport.path,
        )
    elif context.spec.parallelism.tensor > 1:
        yield warning(
            FindingReason.VIRTUAL_GPU,
            f"{what}. Several vGPUs reach each other directly only over NVLink and with all memory of their GPUs; otherwise "
            "every layer's sums go through host memory, slowly: prefer one larger vGPU, or pass whole GPUs through",
            "spec.parallelism.tensor",
        )
    else:
        yield info(
            FindingReason.VIRTUAL_GPU,
            f"{what}; to use them, pass whole GPUs through to the virtual machine",
            "spec.hardware",
        )


def shared_gpus(plan: CheckInput) -> Iterator[Finding]:
    """A GPU that pods share: time-slicing does not divide its memory, and MPS has a /dev/shm of its own (k8s-device-plugin,
    updateResponseForMPS; in its issue 805 a pod like ours found no GPU)."""
    gpu = plan.context.gpu
    if gpu is not None and gpu.sharing is Sharing.MPS:
        yield warning(
            FindingReason.MPS_SHARED_MEMORY,
            "pods share a GPU by MPS, for which NVIDIA's device plugin mounts a /dev/shm into their containers, where the pod "
            "already has the one that the engine needs. Whether both work together is untested: if the engine finds no GPU or "
            "no shared memory, share the GPU by MIG, or use a whole one",
            "spec.hardware",
        )
    if gpu is not None and gpu.time_sliced:
        pods = -(-gpu.allocatable // max(gpu.devices, 1))
        mig = gpu.sharing is Sharing.MIG
        device = "MIG slice" if mig else "GPU"
        instead = "stop sharing slices" if mig else "share the GPU by MIG or MPS, which divide memory"
        yield warning(
            FindingReason.GPU_SHARED,
            f"up to {pods} pods share a {device} by time-slicing, which does not divide its memory. The plan uses the whole "
            f"{device}, and the engine fails if another pod has taken the memory that it needs: {instead}, or keep other pods "
            "away. engine.settings.mem_fraction_static does not divide it either: it is a share of "
            "what is free when an engine starts, so of two engines with one half each, the second gets half of the rest, and "
            "the first may have no memory left for activations",
            "spec.hardware",
        )
