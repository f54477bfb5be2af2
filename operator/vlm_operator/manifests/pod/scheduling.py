"""Where pods may run, and the resources and devices that they request."""

import hashlib
import json
from typing import Any

from vlm_api.plan import ServingPlan, Sharing
from vlm_operator.manifests.names import DEVICES, Manifest, pool_name
from vlm_operator.placement.scheduler import GPU_TOLERATION
from vlm_operator.plan.request import PoolRequest

# Driver and device classes of kubernetes-sigs/dra-driver-nvidia-gpu.
DRIVER = "gpu.nvidia.com"
GPU_CLASS = "gpu.nvidia.com"
MIG_CLASS = "mig.nvidia.com"


def resources(plan: ServingPlan) -> Manifest:
    """Devices as limit and request, which must be equal for extended resources; memory and disk as requests only.

    A memory limit is left to the user (docs/tuning.md, "The pod's memory"): one that is too low would kill an engine that
    serves.
    """
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    requested: Manifest = {}
    if plan.resources.devices_per_pod > 0:
        if plan.hardware.claims:
            requested["claims"] = [{"name": DEVICES}]
        elif plan.hardware.resource_name:
            limits[plan.hardware.resource_name] = str(plan.resources.devices_per_pod)
            requests[plan.hardware.resource_name] = str(plan.resources.devices_per_pod)
    if plan.memory.host_memory_mib:
        requests["memory"] = f"{plan.memory.host_memory_mib}Mi"
    if plan.resources.ephemeral_storage_mib:
        requests["ephemeral-storage"] = f"{plan.resources.ephemeral_storage_mib}Mi"
    if limits:
        requested["limits"] = limits
    if requests:
        requested["requests"] = requests
    return requested


def tolerations(plan: ServingPlan) -> list[Manifest]:
    """The toleration of the usual taint of GPU nodes; no other."""
    return [dict(GPU_TOLERATION)] if plan.hardware.device != "cpu" else []


def hold_to_hardware(affinity: Manifest, plan: ServingPlan) -> Manifest:
    """The user's affinity with the plan's hardware added to each node selector term, since the terms are alternatives."""
    wanted = _expressions(plan)
    if not wanted:
        return affinity
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required = dict(node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *wanted]} for term in terms
    ]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**affinity, "nodeAffinity": node_affinity}


def _expressions(plan: ServingPlan) -> list[Manifest]:
    """Labels, which also match nodes that an autoscaler adds; node names only if no label tells other hardware apart."""
    hardware = plan.hardware
    if hardware.match_labels:
        return [
            {"key": key, "operator": "In", "values": [value]} for key, value in sorted(hardware.match_labels.items())
        ]
    if hardware.device != "cpu" and hardware.nodes and hardware.passed_over:
        return [{"key": "kubernetes.io/hostname", "operator": "In", "values": sorted(hardware.nodes)}]
    return [
        {"key": key, "operator": "NotIn", "values": values} for key, values in sorted(hardware.avoid_labels.items())
    ]


def claim_spec(plan: ServingPlan) -> Manifest:
    """A resource.k8s.io/v1 ResourceClaimSpec: the plan's number of devices, of the planned hardware."""
    exactly: Manifest = {
        "deviceClassName": MIG_CLASS if plan.hardware.sharing is Sharing.MIG else GPU_CLASS,
        "allocationMode": "ExactCount",
        "count": plan.resources.devices_per_pod,
    }
    if selectors := _selectors(plan):
        exactly["selectors"] = [{"cel": {"expression": " && ".join(selectors)}}]
    return {"devices": {"requests": [{"name": DEVICES, "exactly": exactly}]}}


def claim_template_name(plan: ServingPlan, request: PoolRequest) -> str:
    """The name of the ResourceClaimTemplate. Its spec is immutable, so another spec gets another name."""
    text = json.dumps(claim_spec(plan), sort_keys=True, separators=(",", ":"))
    return f"{pool_name(request.service, request.pool)}-{DEVICES}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _selectors(plan: ServingPlan) -> list[str]:
    expressions = []
    if plan.hardware.compute_capability:
        expressions.append(
            f"device.attributes['{DRIVER}'].cudaComputeCapability"
            f".compareTo(semver('{plan.hardware.compute_capability}.0')) == 0"
        )
    if plan.hardware.memory_mib:
        expressions.append(
            f"device.capacity['{DRIVER}'].memory.compareTo(quantity('{plan.hardware.memory_mib}Mi')) >= 0"
        )
    return expressions
