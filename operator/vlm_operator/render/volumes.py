"""The volumes of the engine's pod."""

from __future__ import annotations

from vlm_api.names import CACHE_VOLUME, PLAN_KEY
from vlm_api.plan import ServingPlan
from vlm_api.status import VLMService
from vlm_operator.render import names
from vlm_operator.render.names import Manifest


def volumes(plan: ServingPlan, service: VLMService) -> list[Manifest]:
    """All volumes. The plan's ConfigMap is named when the hash is known."""
    found: list[Manifest] = [
        {"name": names.RUNTIME_VOLUME, "emptyDir": {}},
        {"name": names.PLAN_VOLUME, "configMap": {"items": [{"key": PLAN_KEY, "path": PLAN_KEY}]}},
        {"name": names.SHARED_MEMORY_VOLUME, "emptyDir": _shared_memory(plan, service)},
        {"name": CACHE_VOLUME, **_cache(service)},
        {"name": names.SCRATCH_VOLUME, "emptyDir": {}},
    ]
    if source := _model(service.spec.model.uri):
        found.append({"name": names.MODEL_VOLUME, **source})
    return found


def claim_name(uri: str) -> str | None:
    """``pvc://CLAIM/PATH`` -> ``CLAIM``; None for every other kind of model."""
    return uri.removeprefix("pvc://").split("/", 1)[0] if uri.startswith("pvc://") else None


def _shared_memory(plan: ServingPlan, service: VLMService) -> Manifest:
    """/dev/shm. The default of 64 MiB breaks NCCL and the CPU transport; without a limit it may eat the node."""
    size = service.spec.shared_memory_size
    if size is None and plan.memory.shared_memory_mib is not None:
        size = f"{plan.memory.shared_memory_mib}Mi"
    return {"medium": "Memory"} if size is None else {"medium": "Memory", "sizeLimit": str(size)}


def _cache(service: VLMService) -> Manifest:
    claim = service.spec.model.cache_claim
    return {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}


def _model(uri: str) -> Manifest | None:
    if claim := claim_name(uri):
        return {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    if uri.startswith("oci://"):
        return {"image": {"reference": uri.removeprefix("oci://"), "pullPolicy": "IfNotPresent"}}
    return None
