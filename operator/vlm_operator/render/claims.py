"""Devices through dynamic resource allocation: the ResourceClaimTemplate of a plan."""

from __future__ import annotations

import hashlib
import json

from vlm_api.plan import ServingPlan, Sharing
from vlm_operator.render.names import DEVICES, Manifest

# Driver and device classes of kubernetes-sigs/dra-driver-nvidia-gpu.
DRIVER = "gpu.nvidia.com"
GPU_CLASS = "gpu.nvidia.com"
MIG_CLASS = "mig.nvidia.com"


def claim_spec(plan: ServingPlan) -> Manifest:
    """A resource.k8s.io/v1 ResourceClaimSpec: this many devices, of the hardware that the plan was made for."""
    exactly: Manifest = {
        "deviceClassName": MIG_CLASS if plan.hardware.sharing is Sharing.MIG else GPU_CLASS,
        "allocationMode": "ExactCount",
        "count": plan.resources.devices_per_pod,
    }
    if selectors := _selectors(plan):
        exactly["selectors"] = [{"cel": {"expression": " && ".join(selectors)}}]
    return {"devices": {"requests": [{"name": DEVICES, "exactly": exactly}]}}


def claim_template_name(plan: ServingPlan, service: str) -> str:
    """Its name. The spec of a ResourceClaimTemplate is immutable, so another spec gets another name."""
    text = json.dumps(claim_spec(plan), sort_keys=True, separators=(",", ":"))
    return f"{service}-{DEVICES}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _selectors(plan: ServingPlan) -> list[str]:
    found = []
    if plan.hardware.compute_capability:
        found.append(
            f"device.attributes['{DRIVER}'].cudaComputeCapability"
            f".compareTo(semver('{plan.hardware.compute_capability}.0')) == 0"
        )
    if plan.hardware.memory_mib:
        found.append(f"device.capacity['{DRIVER}'].memory.compareTo(quantity('{plan.hardware.memory_mib}Mi')) >= 0")
    return found
