"""How long a plan takes on one core, for small and for large clusters.

    python benchmarks/plan.py [--seconds 2]

Facts are read once per node and change of it (the controller keeps them), so they are timed apart. Prints one row per
cluster size: nodes, milliseconds per plan, plans per second, milliseconds to read the facts of all nodes. A plan waits for
nothing, so all of it is time of the processor, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from vlm_api.status import VLMService
from vlm_operator.facts.nodes.node import node_facts
from vlm_operator.facts.types import Cluster
from vlm_operator.plan.request import requests_of
from vlm_operator.plan.stored import plan_with_manifests

SIZES = (1, 100, 1000)
SERVICE = {
    "metadata": {"name": "qwen3-vl"},
    "spec": {
        "model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"},
        "workload": {"concurrency": 400, "images": {"width": 512, "height": 512, "reuse": "SingleUse"}},
    },
}


def node(index: int) -> dict[str, Any]:
    """A node of eight H100s."""
    labels = {
        "kubernetes.io/hostname": f"node-{index}",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
    }
    return {
        "metadata": {"name": f"node-{index}", "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def milliseconds(work: Callable[[], object], seconds: float) -> float:
    """Mean processor time of one call over about that many seconds of it, after one call to warm up."""
    work()
    calls, started = 0, time.process_time()
    while (elapsed := time.process_time() - started) < seconds:
        work()
        calls += 1
    return elapsed / calls * 1000


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per measurement (default 2)")
    seconds = parser.parse_args().seconds
    service = VLMService.model_validate(SERVICE)
    table = Table("nodes", "ms per plan", "plans/s", "ms to read all nodes", title="Plans with manifests, one core")
    for size in SIZES:
        nodes = [node(i) for i in range(size)]
        cluster = Cluster(tuple(node_facts(n) for n in nodes))
        plan = milliseconds(
            lambda c=cluster: plan_with_manifests(requests_of(service)[0], c, runtime_image="operator:bench"), seconds
        )
        facts = milliseconds(lambda n=nodes: [node_facts(one) for one in n], seconds)
        table.add_row(f"{size:,}", f"{plan:.2f}", f"{1000 / plan:,.0f}", f"{facts:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
