"""Where pods may run, and what they ask for there."""

from __future__ import annotations

from typing import Any

from vlm_api.plan import ServingPlan
from vlm_operator.render.names import DEVICES, Manifest

GPU_TOLERATION: Manifest = {"key": "nvidia.com/gpu", "operator": "Exists"}


def resources(plan: ServingPlan) -> Manifest:
    """Devices as limit and request, which must be equal for extended resources; memory and disk as requests alone.

    A memory limit is left to the user (docs/tuning.md, "The pod's memory"): a guessed one would kill an engine that serves.
    """
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    found: Manifest = {}
    if plan.resources.devices_per_pod > 0:
        if plan.hardware.claims:
            found["claims"] = [{"name": DEVICES}]
        elif plan.hardware.resource_name:
            limits[plan.hardware.resource_name] = str(plan.resources.devices_per_pod)
            requests[plan.hardware.resource_name] = str(plan.resources.devices_per_pod)
    if plan.memory.host_memory_mib:
        requests["memory"] = f"{plan.memory.host_memory_mib}Mi"
    if plan.resources.ephemeral_storage_mib:
        requests["ephemeral-storage"] = f"{plan.resources.ephemeral_storage_mib}Mi"
    if limits:
        found["limits"] = limits
    if requests:
        found["requests"] = requests
    return found


def tolerations(plan: ServingPlan) -> list[Manifest]:
    """The usual taint of GPU nodes; no other."""
    return [GPU_TOLERATION] if plan.hardware.device != "cpu" else []


def hold_to_hardware(affinity: Manifest, plan: ServingPlan) -> Manifest:
    """The user's affinity, with the plan's hardware required in each of its alternatives.

    Terms of a node selector are alternatives, so what must always hold is added to every one of them.
    """
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
    """Labels hold for an autoscaler's future nodes too; names are the last resort, where other hardware is about."""
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
