"""Services and plans as short as a test can say them."""

from typing import Any

from unit.plan.builders import request_of

from vlm_api.plan import (
    ExpectedHardware,
    PlanEngine,
    PlanHardware,
    PlanMemory,
    PlanResources,
    PlanRuntime,
    ServiceRef,
    ServingPlan,
)
from vlm_api.status import VLMService
from vlm_operator import manifests as render

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def service(name: str = "vlm", metadata: dict[str, Any] | None = None, **spec: Any) -> VLMService:
    """A service in namespace ``default``; keyword arguments are its spec in camelCase."""
    spec.setdefault("model", {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"})
    names = {"name": name, "namespace": "default", "uid": "uid-of-" + name, "generation": 1}
    return VLMService.model_validate({"metadata": names | (metadata or {}), "spec": spec})


def plan(name: str = "vlm", **changes: Any) -> ServingPlan:
    """A plan for one H100; keyword arguments replace its parts."""
    made = ServingPlan(
        service=ServiceRef(name=name, namespace="default"),
        engine=PlanEngine(
            version="1.2.3", image="lmsysorg/sglang:v1.2.3", args=["--host", "0.0.0.0"], env={"B": "2", "A": "1"}
        ),
        hardware=PlanHardware(
            device="cuda",
            compute_capability="9.0",
            memory_mib=81559,
            resource_name="nvidia.com/gpu",
            match_labels=H100,
            nodes=["node-0"],
            source="gfd",
        ),
        memory=PlanMemory(shared_memory_mib=8192, host_memory_mib=65536),
        resources=PlanResources(devices_per_pod=1, pods=1),
        runtime=PlanRuntime(
            image="registry.example/vlm-operator:1",
            served_model_name=name,
            startup_budget_seconds=900,
            drain_seconds=300,
            hardware=ExpectedHardware(device="cuda", devices=1),
        ),
    )
    return made.model_copy(update=changes)


def sealed(made: ServingPlan, of: VLMService) -> tuple[ServingPlan, dict[str, Any]]:
    """The plan with its hash, and its pod template."""
    template = render.pod_template(made, request_of(of))
    return made.model_copy(update={"hash": render.plan_hash(made, template)}), template


def objects(made: ServingPlan, of: VLMService) -> dict[str, dict[str, Any]]:
    """All objects by kind."""
    finished, template = sealed(made, of)
    return {o["kind"]: o for o in render.objects([render.Pool(finished, template, request_of(of))])}


def pod(made: ServingPlan, of: VLMService) -> dict[str, Any]:
    """The pod's spec."""
    return render.pod_template(made, request_of(of))["spec"]


def main(made: ServingPlan, of: VLMService) -> dict[str, Any]:
    """The engine's container."""
    return next(c for c in pod(made, of)["containers"] if c["name"] == "main")
