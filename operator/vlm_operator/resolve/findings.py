"""What a person should know of a plan, beside its settings: model, driver, groups, shared memory."""

from __future__ import annotations

from vlm_api.plan import Finding, Severity, Sharing
from vlm_api.spec import VLMServiceSpec
from vlm_operator import memory
from vlm_operator.engines.catalogue import known
from vlm_operator.engines.images import driver_cuda, image_cuda, other_hardware
from vlm_operator.facts.labels import quantity
from vlm_operator.facts.models import READABLE, known_parameters, real_architecture
from vlm_operator.facts.types import ComputeCapability, GpuFacts, ModelFacts
from vlm_operator.resolve.conditions import LEGACY_TRANSPORT, travels_by_cuda_ipc
from vlm_operator.resolve.context import Context, Declared
from vlm_operator.resolve.rules.workload import images_in_flight

# A model's name rounds its number, and the spec takes whole billions: Qwen3-VL-8B has 8.77.
ROUNDED = 0.1


def model_findings(context: Context, read: ModelFacts | None) -> list[Finding]:
    """What is not known of the model, or said otherwise than its files say."""
    spec, findings = context.spec, []
    if context.model.architecture is None:
        unread = "" if spec.model.uri.startswith(READABLE) else " (files inside images are not read beforehand)"
        findings.append(
            Finding(
                severity=Severity.INFO,
                reason="ModelUnknown",
                message=f"nothing is known of {spec.model.uri}{unread}, so no profile of a model family applies; "
                "say spec.model.architecture and parametersBillion (both stand in the model's config.json and card)",
                path="spec.model.architecture",
            )
        )
    elif spec.model.architecture and real_architecture(spec.model, read) not in (None, spec.model.architecture):
        findings.append(
            Finding(
                severity=Severity.WARNING,
                reason="ArchitectureDiffers",
                message=f"spec.model.architecture is {spec.model.architecture}, which the plan follows, but the model's "
                f"config.json says {real_architecture(spec.model, read)}, which the engine follows: correct it, or leave it out",
                path="spec.model.architecture",
            )
        )
    elif context.family is None and spec.workload.images.width is not None:
        findings.append(
            Finding(
                severity=Severity.INFO,
                reason="FamilyUnknown",
                message=f"{context.model.architecture} belongs to no known family: its images cannot be counted, "
                "and the engine's defaults are used; set sizes in spec.engine.settings where you know better",
                path="spec.model.architecture",
            )
        )
    known, said = known_parameters(spec.model, read), (spec.model.parameters_billion or 0) * 1e9
    if said and known is not None and abs(said - known) > max(ROUNDED * known, 0.5e9):
        findings.append(
            Finding(
                severity=Severity.WARNING,
                reason="ParametersDiffer",
                message=f"spec.model.parametersBillion is {spec.model.parameters_billion}, which the plan follows, but the "
                f"model has {known / 1e9:.2f} billion parameters: correct it, or leave it out",
                path="spec.model.parametersBillion",
            )
        )
    return findings


# The first compute capability that code for CUDA 13 is compiled for: its release notes drop Maxwell, Pascal and Volta.
OLDEST_FOR_CUDA_13 = ComputeCapability(7, 5)


def driver_findings(image: str, gpu: GpuFacts | None) -> list[Finding]:
    """An image that is built for a newer CUDA than the nodes' driver runs, or for newer GPUs than these."""
    if gpu is not None and (word := other_hardware(image)) is not None:
        return [
            Finding(
                severity=Severity.WARNING,
                reason="ImageForOtherHardware",
                message=f"the image {image} is built for other hardware ({word}), and the pods get NVIDIA GPUs: the engine would "
                "not find them; choose an image without that word, or leave it out",
                path="spec.engine.image",
            )
        ]
    needs = image_cuda(image)
    if needs is None or gpu is None:
        return []
    older: str = known()["last_cuda_12"]["image"]
    instead = (
        f"choose an image for an older CUDA, such as {older}" if needs[0] == 13 else "choose an image for an older CUDA"
    )
    runs = gpu.cuda or driver_cuda(gpu.driver)
    built = f"the image {image} is built for CUDA {needs[0]}.{needs[1]}"
    # Inside one CUDA major version an older driver runs newer minor versions (minor version compatibility).
    if runs is not None and runs[0] < needs[0]:
        driver = f"driver {gpu.driver}" if gpu.driver else "driver"
        return [
            Finding(
                severity=Severity.WARNING,
                reason="DriverTooOld",
                message=f"{built}, and the nodes' {driver} runs CUDA {runs[0]}.{runs[1]} at most: the engine ends at its "
                "start unless the image brings NVIDIA's forward compatibility package, which is for data-centre GPUs "
                f"only; update the driver, or {instead}",
                path="spec.engine.image",
            )
        ]
    if needs[0] >= 13 and gpu.compute_capability is not None and gpu.compute_capability < OLDEST_FOR_CUDA_13:
        return [
            Finding(
                severity=Severity.WARNING,
                reason="GpuTooOld",
                message=f"{built}, which has no code for GPUs of compute capability {gpu.compute_capability}: the engine "
                f"would end at its first kernel; take other GPUs, or {instead}",
                path="spec.engine.image",
            )
        ]
    return []


def virtual_gpu_findings(context: Context, declared: Declared) -> list[Finding]:
    """What a vGPU does not do that a bare GPU does, as far as this plan needs it.

    Source: NVIDIA AI Enterprise, vGPU for Compute: peer-to-peer transfers only over NVLink, between time-sliced vGPUs that
    have all of their card's memory, and never over PCIe.
    """
    gpu, parallel = context.gpu, context.spec.parallelism
    if gpu is None or not gpu.virtual:
        return []
    transport = context.choices.settings.get("mm_feature_transport") or context.choices.settings.get(LEGACY_TRANSPORT)
    path = "spec.hardware"
    message = (
        "the GPUs are virtual ones (label nvidia.com/vgpu.present): measured sets are for bare GPUs and not applied"
    )
    severity = Severity.INFO
    if transport is not None and travels_by_cuda_ipc(declared):
        severity, path = Severity.WARNING, transport.path
        message += (
            ". NVIDIA names no CUDA IPC among what a vGPU can do, and the engine ends where it is missing: remove it"
        )
    elif parallel.tensor > 1:
        severity, path = Severity.WARNING, "spec.parallelism.tensor"
        message += (
            ". Several reach each other directly only over NVLink and with all of their cards' memory; otherwise every layer's "
            "sums go through the host's memory, slowly: prefer one larger vGPU, or whole GPUs passed through"
        )
    else:
        message += "; for those, pass whole GPUs through to the virtual machine"
    return [Finding(severity=severity, reason="VirtualGpu", message=message, path=path)]


def shared_gpu_findings(context: Context) -> list[Finding]:
    """A card that pods share: by time-slicing nothing keeps them from taking each other's memory, and MPS has a /dev/shm of
    its own (k8s-device-plugin, updateResponseForMPS; its issue 805 is a pod like ours that found no GPU)."""
    gpu = context.gpu
    if gpu is not None and gpu.sharing is Sharing.MPS:
        return [
            Finding(
                severity=Severity.WARNING,
                reason="MpsSharedMemory",
                message="pods share a card by MPS, for which NVIDIA's device plugin mounts a /dev/shm into their containers, "
                "where the pod has one already that the engine needs: that both work has not been tried; if the engine finds no "
                "GPU or no shared memory there, share the card by MIG, or take a whole one",
                path="spec.hardware",
            )
        ]
    if gpu is None or gpu.sharing is not Sharing.TIME_SLICING:
        return []
    pods = -(-gpu.allocatable // max(gpu.devices, 1))
    return [
        Finding(
            severity=Severity.WARNING,
            reason="GpuShared",
            message=f"up to {pods} pods share a card by time-slicing, and nothing divides its memory: the plan is for the "
            "whole card, and the engine ends where another pod has taken what it needs; share the card by MIG or MPS, which "
            "do divide it, or keep the other pods away. engine.settings.mem_fraction_static divides nothing: it is a part of "
            "what is free when an engine starts, so of two with one half each the second gets half of the rest, and the first "
            "one's activations may find nothing left",
            path="spec.hardware",
        )
    ]


def group_findings(spec: VLMServiceSpec, has_leader_worker_sets: bool) -> list[Finding]:
    """Several nodes per copy, in a cluster that has no controller for such groups."""
    if spec.multinode.node_count == 1 or has_leader_worker_sets:
        return []
    return [
        Finding(
            severity=Severity.ERROR,
            reason="LeaderWorkerSetMissing",
            message="several nodes per copy need the LeaderWorkerSet controller, which this cluster does not have: "
            "install it (leaderworkerset.x-k8s.io), or set multinode.nodeCount to 1",
            path="spec.multinode.nodeCount",
        )
    ]


def shared_memory_mib(context: Context) -> int:
    """Size of /dev/shm in MiB, as it is computed for this service."""
    image = context.image
    return memory.shared_memory_mib(
        cuda=context.cuda,
        devices_in_pod=max(context.devices_per_pod, 1),
        images=images_in_flight(context),
        image_bytes=image.bytes if image else None,
    )


def shared_memory_findings(context: Context) -> list[Finding]:
    """The user's size of /dev/shm where it is less than what is computed."""
    said, needed = quantity(context.spec.shared_memory_size), shared_memory_mib(context)
    if said is None or said >= needed * memory.MIB:
        return []
    return [
        Finding(
            severity=Severity.WARNING,
            reason="SharedMemoryTooSmall",
            message=f"sharedMemorySize {context.spec.shared_memory_size} is less than the {needed:,} MiB that images in "
            "flight and the GPUs' communication may need: the engine can fail when /dev/shm is full; raise or remove it",
            path="spec.sharedMemorySize",
        )
    ]
