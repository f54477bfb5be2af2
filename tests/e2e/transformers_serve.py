"""`transformers serve`, another server that speaks OpenAI's API, out of the same folder as the engine, as a pod."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e import services
from e2e.world import World

NAME = "transformers"
MODEL = "/models/tiny-qwen3-vl"  # the only name by which it knows its model; it lists none
URL = f"http://{NAME}:8000"

# The command as it is but for one thing: a device takes the package accelerate, which SGLang does not bring. Without one
# the model is on the CPU as well.
PROGRAM = """
from transformers.cli.serving.model_manager import ModelManager
ModelManager.device = property(lambda self: None, lambda self, value: None)
from transformers.cli.transformers import app
app()
"""


@contextmanager
def running(world: World) -> Iterator[None]:
    """The pod and its Service, ready."""
    world("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [_pod(), _service()]}))
    try:
        world("wait", f"pod/{NAME}", "--for=condition=Ready", "--timeout=150s")
        yield
    finally:
        world("delete", f"pod/{NAME}", f"service/{NAME}", "--timeout=60s")


def _pod() -> dict[str, Any]:
    claims = {"sglang": "/opt/sglang", "models": "/models"}
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for name, path in claims.items()]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": True}} for name in claims]
    environment = {"PYTHONPATH": "/opt/sglang", "HOME": "/tmp", "HF_HOME": "/tmp/hub", "HF_HUB_OFFLINE": "1"}
    container = {
        "name": "serve",
        "image": services.cpu()["engine"]["image"],
        "command": ["python3", "-c", PROGRAM, "serve", MODEL, "--host=0.0.0.0", "--port=8000"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
        "volumeMounts": [*mounts, {"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME, "labels": {"app": NAME}}, "spec": spec}


def _service() -> dict[str, Any]:
    spec = {"selector": {"app": NAME}, "ports": [{"port": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": spec}
