"""Small services and nodes, so that a test says only what it is about."""

from typing import Any

from vlm_api.plan import Finding, ServingPlan
from vlm_api.status import VLMService
from vlm_operator.facts.nodes.node import node_facts
from vlm_operator.facts.types import Cluster
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.request import PoolRequest, requests_of

RUNTIME_IMAGE = "example.com/vlm-operator:test"
QWEN3_VL = {
    "uri": "hf://Qwen/Qwen3-VL-8B-Instruct",
    "architecture": "Qwen3VLForConditionalGeneration",
    "parametersBillion": 8,
}
REFERENCE_WORKLOAD = {
    "concurrency": 400,
    "inputTokens": 128,
    "outputTokens": 128,
    "images": {"perRequest": 1, "width": 512, "height": 512, "reuse": "SingleUse"},
}


def service(name: str = "qwen3-vl", **spec: Any) -> VLMService:
    """The reference service, with parts of its spec replaced."""
    whole = {"model": QWEN3_VL, "workload": REFERENCE_WORKLOAD} | spec
    return VLMService.model_validate({"metadata": {"name": name, "namespace": "default"}, "spec": whole})


def request_of(a_service: VLMService) -> PoolRequest:
    """The request of a service with one pool."""
    (only,) = requests_of(a_service)
    return only


def images(**changes: Any) -> dict[str, Any]:
    """The reference workload with other images."""
    return REFERENCE_WORKLOAD | {"images": REFERENCE_WORKLOAD["images"] | changes}


def node(
    name: str = "node-0",
    product: str | None = "NVIDIA-H100-80GB-HBM3",
    memory_mib: int | None = 81_559,
    capability: str | None = "9.0",
    count: int = 8,
    **more: Any,
) -> dict[str, Any]:
    """A node as GPU feature discovery labels it: eight H100s unless said otherwise."""
    major, _, minor = (capability or "").partition(".")
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": None if memory_mib is None else str(memory_mib),
        "nvidia.com/gpu.compute.major": major or None,
        "nvidia.com/gpu.compute.minor": minor or None,
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
    } | more.get("labels", {})
    allocatable = {"cpu": "190", "memory": "2000Gi", "nvidia.com/gpu": str(more.get("allocatable", count))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {k: v for k, v in labels.items() if v is not None}},
        "spec": more.get("spec", {}),
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable | more.get("capacity", {}),
            "conditions": [{"type": "Ready", "status": more.get("ready", "True")}],
        },
    }


def a100(name: str = "ampere", **more: Any) -> dict[str, Any]:
    """A node of eight A100s."""
    return node(name, "NVIDIA-A100-SXM4-80GB", 81_920, "8.0", **more)


def cluster(*nodes: dict[str, Any], in_use: dict[str, int] | None = None, **more: Any) -> Cluster:
    """A cluster of these nodes."""
    return Cluster(tuple(node_facts(n) for n in nodes), in_use or {}, **more)


def plan(a_service: VLMService | None = None, *nodes: dict[str, Any]) -> ServingPlan:
    """The plan for a service on these nodes; the reference service on eight H100s when nothing is said."""
    return make_plan(request_of(a_service or service()), cluster(*(nodes or (node(),))), runtime_image=RUNTIME_IMAGE)


def values(a_plan: ServingPlan) -> dict[str, Any]:
    """Name -> value of what the engine is told."""
    return {s.name: s.value for s in a_plan.settings if s.applied}


def reasons(a_plan: ServingPlan) -> list[str]:
    """The reasons of the findings."""
    return [f.reason for f in a_plan.findings]


def findings_of(reason: str, a_plan: ServingPlan) -> list[Finding]:
    """The findings with that reason."""
    return [f for f in a_plan.findings if f.reason == reason]
