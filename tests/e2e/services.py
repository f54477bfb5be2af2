"""The specs that the tests apply: what a user writes, and no more."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import yaml
from demo.services import example

Spec = dict[str, Any]


def cpu(**changes: Any) -> Spec:
    """examples/qwen3-vl-cpu.yaml: a tiny model, really served by unchanged SGLang. ``changes`` replace top fields."""
    spec: Spec = yaml.safe_load(example("qwen3-vl-cpu").read_text())["spec"]
    return deepcopy(spec) | changes


def cpu_with_engine(**engine: Any) -> Spec:
    """The same with other fields of ``spec.engine``."""
    spec = cpu()
    return spec | {"engine": spec["engine"] | engine}


def l40s(*, tensor: int = 1) -> Spec:
    """Qwen3-VL-8B on L40S GPUs. No other test and no example uses these, so nobody else's pods take them."""
    return {
        "model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"},
        "hardware": {"products": ["NVIDIA-L40S"]},
        "parallelism": {"tensor": tensor},
        "workload": {"concurrency": 16, "images": {"width": 512, "height": 512}},
    }
