#!/usr/bin/env python3
"""Compares the plans of random services before and after a change, through the command line that users have.

    python benchmarks/same_plans.py REVISION [--services 800] [--seed 1]

Both sides run ``kubectl vlm plan -o json`` on the same services and nodes: this working tree, and REVISION in a worktree of
its own. Compared are the exit code, settings, arguments, environment, memory, resources, hardware, the kinds of objects,
and severity and field of each finding; for input that is refused, the field. Hash, labels, reasons and messages may differ.
Exit 1 if a plan differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from conformance.samples import ARGS, ENV, GPUS, SETTINGS, SPECULATION  # noqa: E402

MODELS: Final = (
    {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"},
    {"uri": "hf://Qwen/Qwen3-VL-30B-A3B-Instruct"},
    {"uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct"},
    {"uri": "hf://Qwen/Qwen2.5-VL-7B-Instruct"},
    {"uri": "hf://Qwen/Qwen2.5-VL-72B-Instruct"},
    {"uri": "hf://OpenGVLab/InternVL3-8B"},
    {"uri": "hf://tiny/unknown"},
    {"uri": "hf://tiny/unknown", "architecture": "LlavaForConditionalGeneration", "parametersBillion": 7},
    {"uri": "pvc://models/qwen", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 33},
    {"uri": "oci://example.com/model:1", "architecture": "Qwen3VLMoeForConditionalGeneration", "parametersBillion": 31},
    {"uri": "file:///models/q", "architecture": "Qwen2_5_VLForConditionalGeneration", "parametersBillion": 8},
    {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct", "parametersBillion": 70, "cacheClaim": "weights"},
)
RELEASES: Final = ("0.5.9", "0.5.16", "0.5.18", "0.5.20", "0.5.21", "0.5.22", "0.5.23", None, None)
MORE_SETTINGS: Final[tuple[dict[str, Any], ...]] = (
    {"quantization": "fp8"},
    {"quantization": "awq"},
    {"enable_dp_attention": True},
    {"limit_mm_data_per_request": {"image": 4}},
    {"mm_process_config": {"image": {"max_pixels": 1048576}}},
    {"enable_multimodal": True},
    {"encoder_only": True},
    {"base_gpu_id": 1},
    {"page_size": 64, "chunked_prefill_size": 100},
    {"no_such_setting": 1},
    {"mem_fraction_static": 0.95},
    {"cpu_offload_gb": 4},
    {"ssl_keyfile": "/tls/key"},
    {"enable_http2": True},
    {"mm_enable_dp_encoder": True},
)
MORE_ENV: Final = (
    ("HTTPS_PROXY", "http://proxy.test:3128"),
    ("HF_ENDPOINT", "https://10.0.0.1"),
    ("SGLANG_PLUGINS", "x"),
)
TEMPLATES: Final[tuple[dict[str, Any], ...]] = (
    {"spec": {"nodeSelector": {"pool": "gpu"}}},
    {"spec": {"hostNetwork": True}},
    {"spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}},
    {"spec": {"containers": [{"name": "main", "args": ["--quantization", "fp8"]}]}},
    {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "16Gi"}}}]}},
    {"spec": {"containers": [{"name": "main", "env": [{"name": "SGLANG_VLM_CACHE_SIZE_MB", "value": "64"}]}]}},
    {"metadata": {"labels": {"team": "vision"}}},
)
# Run on each side: one line of JSON for each case.
PLANNER: Final = """
import contextlib, io, json, sys
from vlm_operator.cli.main import main
for folder in sys.stdin.read().split():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(["plan", "-f", f"{folder}/service.json", "--nodes", f"{folder}/nodes.json", "-o", "json"])
        except SystemExit as end:
            code = end.code
    print(json.dumps({"exit": code, "out": out.getvalue(), "error": err.getvalue()}), flush=True)
"""


def services(seed: int, count: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """A VLMService and the cluster's nodes, the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        yield _service(chance), [_node(chance, number) for number in range(chance.choice((0, 1, 1, 2, 3)))]


def _service(chance: random.Random) -> dict[str, Any]:
    sometimes = lambda share: chance.random() < share  # noqa: E731
    images: dict[str, Any] = {"reuse": chance.choice(("SingleUse", "SingleUse", "Unknown", "Repeated"))}
    if sometimes(0.7):
        images |= {"width": chance.choice((33, 224, 512, 1280, 4000)), "height": chance.choice((224, 512, 720, 2160))}
        images["perRequest"] = chance.choice((1, 1, 2, 5))
    if sometimes(0.2):
        images["enforce"] = True
    workload: dict[str, Any] = {"images": images}
    if sometimes(0.8):
        workload["concurrency"] = chance.choice((1, 8, 64, 256, 399, 400, 512, 600))
    if sometimes(0.4):
        workload |= {"inputTokens": chance.choice((128, 4096, 60000)), "outputTokens": chance.choice((64, 2048))}
    engine: dict[str, Any] = {}
    if version := chance.choice(RELEASES):
        engine["version"] = version
    elif sometimes(0.3):
        engine["image"] = chance.choice(("lmsysorg/sglang:v0.5.20", "example.com/own@sha256:" + "a" * 64, "x/y:latest"))
    if sometimes(0.5):
        picked = chance.sample(SETTINGS + MORE_SETTINGS, chance.choice((1, 1, 2, 3)))
        engine["settings"] = {name: value for setting in picked for name, value in setting.items()}
    if sometimes(0.08):
        engine["settings"] = engine.get("settings", {}) | chance.choice(SPECULATION)
    if sometimes(0.3):
        engine["args"] = [a for args in chance.sample(ARGS, chance.choice((1, 1, 2))) for a in args]
    if sometimes(0.3):
        name, value = chance.choice(ENV + MORE_ENV)
        engine["env"] = [{"name": name, "value": value}]
    if sometimes(0.05):
        engine["tuning"] = "Off"
    spec: dict[str, Any] = {"model": chance.choice(MODELS), "workload": workload, "engine": engine}
    spec["parallelism"] = {
        "tensor": chance.choice((1, 1, 1, 2, 4, 8)),
        "pipeline": chance.choice((1, 1, 1, 2)),
        "data": chance.choice((1, 1, 1, 2)),
    }
    if sometimes(0.2):
        nodes = chance.choice((2, 4))
        spec["multinode"] = {"nodeCount": nodes}
        if sometimes(0.8):
            spec["parallelism"] = {"tensor": spec["parallelism"]["tensor"] * nodes}
    if sometimes(0.25):
        spec["hardware"] = chance.choice(
            (
                {"device": "cpu"},
                {"computeCapability": "9.0"},
                {"computeCapability": "8.9", "minMemoryMiB": 40000},
                {"minMemoryMiB": 61440},
                {"products": ["NVIDIA-H100-80GB-HBM3"]},
                {"resourceName": "nvidia.com/mig-3g.40gb"},
            )
        )
    if sometimes(0.2):
        spec["template"] = chance.choice(TEMPLATES)
    if sometimes(0.2):
        spec["security"] = chance.choice(
            (
                {"apiKeySecretRef": {"name": "k", "key": "v"}},
                {"allowedMediaDomains": ["images.example.com"]},
                {"networkPolicy": False},
            )
        )
    if sometimes(0.15):
        spec["scaling"] = {"minReplicas": 1, "maxReplicas": 3}
    elif sometimes(0.3):
        spec["replicas"] = chance.choice((0, 2, 3))
    if sometimes(0.1):
        spec["sharedMemorySize"] = chance.choice(("4Gi", "64Gi"))
    metadata = {"name": "s", "namespace": "default"}
    return {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "metadata": metadata, "spec": spec}


def _node(chance: random.Random, number: int) -> dict[str, Any]:
    product, memory_mib, (major, minor) = chance.choice(GPUS)
    count = chance.choice((1, 2, 4, 8))
    resource, sharing, replicas = "nvidia.com/gpu", "none", 1
    kind = chance.random()
    if kind < 0.1:
        sharing, replicas = chance.choice(("time-slicing", "mps")), 2
    elif kind < 0.15:
        resource = "nvidia.com/mig-3g.40gb"
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "kubernetes.io/arch": chance.choice(("amd64", "amd64", "amd64", "arm64")),
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.compute.major": str(major),
        "nvidia.com/gpu.compute.minor": str(minor),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": sharing,
        "nvidia.com/cuda.driver-version.full": chance.choice(("580.95.05", "550.54.15")),
        "pool": "gpu",
    }
    if chance.random() < 0.2:
        labels = {k: v for k, v in labels.items() if not k.startswith("nvidia.com/") or chance.random() < 0.5}
    if chance.random() < 0.1:
        labels |= {"cloud.google.com/gke-accelerator": "nvidia-l4", "nvidia.com/vgpu.present": "true"}
    allocatable = {"cpu": "90", "memory": chance.choice(("64Gi", "2000Gi")), resource: str(count * replicas)}
    if chance.random() < 0.5:
        allocatable["ephemeral-storage"] = chance.choice(("50Gi", "3000Gi"))
    spec: dict[str, Any] = {}
    if chance.random() < 0.2:
        spec["taints"] = [{"key": chance.choice(("nvidia.com/gpu", "dedicated")), "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def plans(checkout: Path, folders: list[Path]) -> list[dict[str, Any]]:
    """What a checkout answers, case by case."""
    roots = os.pathsep.join(str(checkout / root) for root in ("operator", "runtime", "crds"))
    done = subprocess.run(
        [sys.executable, "-c", PLANNER],
        input="\n".join(map(str, folders)),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": roots},
        cwd=checkout,
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compared(answer: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer that must stay."""
    if answer["exit"] == 2:
        return {"exit": 2, "field": re.findall(r"\bspec[^:\s]*(?=:)", answer["error"].splitlines()[0])[:1]}
    plan = json.loads(answer["out"])
    return {
        "exit": answer["exit"],
        "engine": plan["engine"],
        "settings": {s["name"]: [s[k] for k in ("value", "applied", "source", "expected")] for s in plan["settings"]},
        "memory": plan["memory"],
        "resources": plan["resources"],
        "hardware": {k: v for k, v in plan["hardware"].items() if k != "passedOver"}
        | {"passedOver": sorted(p["node"] for p in plan["hardware"]["passedOver"])},
        "findings": sorted([f["severity"], f["path"] or ""] for f in plan["findings"]),
        "manifests": sorted(m["kind"] for m in plan["manifests"]),
    }


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ, as ``path: before -> after``."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield f"{path}: {json.dumps(before)} -> {json.dumps(after)}"


def main() -> int:
    """Plans on both sides, and says what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--services", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        base, folders = Path(made) / "base", []
        git = ["git", "-C", str(REPOSITORY), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(base), options.revision], check=True)
        try:
            for number, (service, nodes) in enumerate(services(options.seed, options.services)):
                folder = Path(made) / f"case-{number}"
                folder.mkdir()
                (folder / "service.json").write_text(json.dumps(service))
                (folder / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
                folders.append(folder)
            before, after = (list(map(compared, plans(checkout, folders))) for checkout in (base, REPOSITORY))
            different = 0
            for folder, old, new in zip(folders, before, after, strict=True):
                if found := list(differences(old, new)):
                    different += 1
                    print(f"{folder.name}: {(folder / 'service.json').read_text()}")
                    print("\n".join(f"    {line}" for line in found[:12]))
            exits = ", ".join(
                f"{count} with exit {code}" for code, count in sorted(Counter(a["exit"] for a in before).items())
            )
            print(f"{len(folders)} services ({exits}): {different} differ")
            return 1 if different else 0
        finally:
            subprocess.run([*git, "remove", "--force", str(base)], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
