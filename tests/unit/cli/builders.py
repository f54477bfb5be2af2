"""VLMServices and nodes, as in a manifest."""

import json
from dataclasses import dataclass
from typing import Any

H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "8",
}
A100 = H100 | {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.compute.major": "8",
}
WORKLOAD = {"concurrency": 400, "images": {"width": 512, "height": 512, "reuse": "SingleUse"}}


def node(name: str = "hopper", labels: dict[str, str] = H100, devices: int = 8) -> dict[str, Any]:
    """A Node as GPU feature discovery labels it."""
    offered = {"nvidia.com/gpu": str(devices)} if devices else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": offered, "capacity": offered},
    }


def service(name: str = "vlm", **spec: Any) -> dict[str, Any]:
    """Qwen3-VL-8B with architecture and size."""
    model = {
        "uri": "hf://Qwen/Qwen3-VL-8B-Instruct",
        "architecture": "Qwen3VLForConditionalGeneration",
        "parametersBillion": 8,
    }
    return {
        "apiVersion": "vlmserve.dev/v1alpha1",
        "kind": "VLMService",
        "metadata": {"name": name},
        "spec": {"model": model, **spec},
    }


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)
