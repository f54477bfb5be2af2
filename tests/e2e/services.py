"""The specs that the tests apply: what a user writes, and no more."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import yaml
from demo.services import example
from e2e.world import World
from unit.runtime.harness import STAND_IN

from vlm_api.names import RUNTIME_MOUNT

Spec = dict[str, Any]


def cpu(**changes: Any) -> Spec:
    """examples/qwen3-vl-cpu.yaml: a tiny model, really served by unchanged SGLang. ``changes`` replace top fields."""
    spec: Spec = yaml.safe_load(example("qwen3-vl-cpu").read_text())["spec"]
    return deepcopy(spec) | changes


def cpu_with_engine(**engine: Any) -> Spec:
    """The same with other fields of ``spec.engine``."""
    spec = cpu()
    return spec | {"engine": spec["engine"] | engine}


def stand_in(**changes: Any) -> Spec:
    """The same service below the same runtime, with tests/unit/runtime/stand_in.py in the engine's place: it streams and
    drains as SGLang does, and starts in a second. Needs ``stand_in_program``."""
    spec = cpu(**changes)
    spec["engine"]["env"] = [{"name": "STAND_IN", "value": '{"unknown_flags": true}'}]
    pod = spec["template"]["spec"]
    main: dict[str, Any] = pod["containers"][0]
    main["command"] = ["python3", f"{RUNTIME_MOUNT}/start.py", "--engine-command", "python3", "/opt/stand-in/engine.py"]
    main["volumeMounts"].append({"name": "stand-in", "mountPath": "/opt/stand-in", "readOnly": True})
    main["resources"] = {"requests": {"memory": "128Mi"}}
    # The kubelet looks every second instead of every five, so that a start takes no longer than it does.
    main |= {probe: {"periodSeconds": 1} for probe in ("startupProbe", "readinessProbe")}
    pod["volumes"].append({"name": "stand-in", "configMap": {"name": "stand-in"}})
    return spec


def stand_in_program() -> dict[str, Any]:
    """The ConfigMap that those pods mount."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "stand-in"},
        "data": {"engine.py": STAND_IN.read_text()},
    }


def l40s(*, tensor: int = 1) -> Spec:
    """Qwen3-VL-8B on L40S GPUs. No other test and no example uses these, so nobody else's pods take them."""
    return {
        "model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"},
        "hardware": {"products": ["NVIDIA-L40S"]},
        "parallelism": {"tensor": tensor},
        "workload": {"concurrency": 16, "images": {"width": 512, "height": 512}},
    }


@contextmanager
def stand_in_serves(world: World, name: str, spec: Spec) -> Iterator[World]:
    """A service of ``stand_in`` that serves, alone on the machine, while the block runs."""
    world.pause_others(name)
    world("apply", "-f", "-", stdin=json.dumps(stand_in_program()))
    world.apply(name, spec)
    world.wait_until_ready(name, 120)
    yield world
    world("delete", "vlms", name, "--timeout=60s")
