"""Planning is total and does not hang on order: any labels and any spec end in a plan, in findings or in one sentence."""

import json
import random
from typing import Any

import pytest
from pydantic import ValidationError
from unit.plan.builders import REFERENCE_WORKLOAD, RUNTIME_IMAGE, a100, node, request_of, service

from vlm_api.problems import problems
from vlm_api.status import VLMService
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.nodes.node import node_facts
from vlm_operator.facts.types import Cluster
from vlm_operator.plan.stored import plan_with_manifests

PARTS, INPUTS = 10, 1000

JUNK: tuple[Any, ...] = (
    None, "", " ", "0", "-1", "8", "1e3", "NaN", "Inf", "9.0", "9", "9999999999999999999999", "true", "Ω" * 70, "\x00",
    "../..", "16Gi", "20GB", 0, -1, 1, 3, 7, 2**63, 1.5, True, [], {}, [None], {"a": None}, [[]], "hf://a/b", "pvc://c",
    "file:///x", "--config", "spec", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "NVIDIA-L4-SHARED", "time-slicing", "mps",
    "p5.48xlarge", "g6f.xlarge", "Standard_ND96isr_H100_v5", "vm-vgpu", "v0.5.9-cu12", 0.97,
)  # fmt: skip
LABELS = (
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.compute.major",
    "nvidia.com/gpu.compute.minor",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/mig.strategy",
    "nvidia.com/cuda.driver-version.full",
    "nvidia.com/cuda.runtime-version.full",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/vram",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-count",
    "nvidia.com/vgpu.present",
    "nvidia.com/gpu.workload.config",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/arch",
)
SPEC: dict[str, Any] = {
    "model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct", "name": "m", "revision": "main", "parametersBillion": 8},
    "replicas": 1,
    "parallelism": {"tensor": 2, "pipeline": 1, "data": 1},
    "multinode": {"nodeCount": 1},
    "workload": REFERENCE_WORKLOAD,
    "hardware": {"computeCapability": "9.0", "minMemoryMiB": 40_000, "products": ["NVIDIA-H100-80GB-HBM3"]},
    "engine": {
        "version": "1.2.3",
        "image": "lmsysorg/sglang:v1.2.3",
        "settings": {
            "prefill_decode_interval": 3,
            "SGLANG_VLM_CACHE_SIZE_MB": 1,
            "mem_fraction_static": 0.5,
            "ep_size": 1,
            "tokenizer_worker_num": 1,
            "cpu_offload_gb": 1,
            "hicache_size": 1,
            "enable_hierarchical_cache": True,
            "max_total_tokens": 9999,
            "limit_mm_data_per_request": {"image": 4},
            "mm_process_config": {"image": {}},
            "base_gpu_id": 0,
            "gpu_id_step": 1,
            "page_size": 1,
            "chunked_prefill_size": 2048,
            "quantization": "fp8",
        },
        "args": ["--log-requests", "--stream-interval", "4"],
        "env": [{"name": "A", "value": "b"}],
    },
    "rolloutStrategy": {"maxSurge": 0, "maxUnavailable": 1},
    "security": {"allowedMediaDomains": ["a.example"], "apiKeySecretRef": {"name": "k", "key": "k"}},
    "sharedMemorySize": "1Gi",
    "template": {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "x", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "containers": [{"name": "main", "env": [{"name": "B", "value": "c"}], "volumeMounts": []}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    },
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


def copied(value: Any) -> Any:
    """As copy.deepcopy, which takes ten times as long for JSON."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def mutated(chance: random.Random, value: Any, changes: int) -> Any:
    """A copy with that many places replaced, removed or swapped for something else that stands in it."""
    value = copied(value)
    for _ in range(changes):
        *above, last = chance.choice(places(value) or [()]) or ("",)
        parent = value
        for key in above:
            parent = parent[key]
        if not isinstance(parent, dict | list) or (isinstance(parent, dict) and last not in parent):
            continue
        if chance.random() < 0.2:
            del parent[last]
        else:
            parent[last] = copied(chance.choice(JUNK))
    return value


def some_node(chance: random.Random, name: str) -> dict[str, Any]:
    made = chance.choice((node, a100))(name)
    for label in chance.sample(LABELS, chance.randint(0, 6)):
        made["metadata"]["labels"][label] = chance.choice(JUNK)
    return mutated(chance, made, chance.choice((0, 0, 1, 3)))


@pytest.mark.parametrize("seed", range(PARTS))
def test_ten_thousand_broken_inputs_end_in_a_plan_in_findings_or_in_sentences(seed):
    chance = random.Random(seed)
    planned = findings = refused = 0
    for _ in range(INPUTS):
        nodes = [some_node(chance, f"n{i}") for i in range(chance.choice((0, 1, 2)))]
        spec = mutated(chance, SPEC, chance.choice((0, 1, 1, 2, 4)))
        try:
            facts = tuple(node_facts(n) for n in nodes)
            read = VLMService.model_validate({"metadata": {"name": "x", "namespace": "default"}, "spec": spec})
            made = plan_with_manifests(request_of(read), Cluster(facts), runtime_image=RUNTIME_IMAGE)
        except (ValidationError, InvalidInput) as error:
            lines = problems(error, VLMService) if isinstance(error, ValidationError) else [error]
            for line in map(str, lines):
                assert line.startswith("spec"), line
                assert "Input should" not in line, line
                assert "\n" not in line, line
            refused += bool(lines)
            continue
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\nspec: {json.dumps(spec)}\nnodes: {json.dumps(nodes)}")
        json.dumps(made.to_api(), allow_nan=False)
        assert bool(made.manifests) != bool(made.errors)
        assert all(f.message and f.reason for f in made.findings)
        planned += not made.errors
        findings += bool(made.findings)
    # Otherwise the mutations would only ever reach the first check.
    assert min(planned, findings, refused) > INPUTS / 20, (planned, findings, refused)


def shuffled(chance: random.Random, value: Any) -> Any:
    """The same JSON value with its maps in another order."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(chance, value[key]) for key in keys}
    return [shuffled(chance, v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_nodes_labels_and_fields_changes_no_byte_of_a_plan(seed):
    chance = random.Random(seed)
    nodes = [*(node(f"h{i}") for i in range(3)), *(a100(f"a{i}") for i in range(3)), node("x", "NVIDIA-H200", 143_771)]
    chance.shuffle(nodes)
    spec = service().spec.to_api() | {"template": SPEC["template"]}

    def printed(the_nodes: list[dict[str, Any]], the_spec: dict[str, Any]) -> str:
        read = VLMService.model_validate({"metadata": {"name": "x", "namespace": "default"}, "spec": the_spec})
        cluster = Cluster(tuple(node_facts(n) for n in the_nodes))
        return json.dumps(plan_with_manifests(request_of(read), cluster, runtime_image=RUNTIME_IMAGE).to_api())

    other = [shuffled(chance, n) for n in sorted(nodes, key=lambda n: n["metadata"]["name"])]
    assert printed(nodes, spec) == printed(other, shuffled(chance, spec))
