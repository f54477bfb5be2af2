"""The containers of the engine's pod and the volumes that they mount."""

import math
from typing import Any

from vlm_api.names import (
    CACHE_MOUNT,
    CACHE_VOLUME,
    ENGINE_PORT,
    ENV_API_KEY,
    ENV_DEVICE,
    ENV_HF_TOKEN,
    INSTALL_CONTAINER,
    MAIN_CONTAINER,
    MODEL_MOUNT,
    PLAN_KEY,
    PLAN_MOUNT,
    READY_PATH,
    RUNTIME_MOUNT,
    RUNTIME_PORT,
)
from vlm_api.plan import ServingPlan
from vlm_api.spec import EnvVar, SecretKeyRef
from vlm_operator.manifests import names
from vlm_operator.manifests.names import Manifest
from vlm_operator.manifests.pod.scheduling import resources
from vlm_operator.plan.request import PoolRequest

# Libraries write to one volume: the root file system is read-only, and the user has no home directory.
# USER: torch names a cache by getpass.getuser(), which fails for a user id without an entry in /etc/passwd.
CACHE_ENV = {
    "HOME": CACHE_MOUNT,
    "USER": "vlmserve",
    "XDG_CACHE_HOME": CACHE_MOUNT,
    "HF_HOME": f"{CACHE_MOUNT}/huggingface",
    "SGLANG_CACHE_DIR": f"{CACHE_MOUNT}/sglang",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_MOUNT}/torchinductor",
    "TRITON_CACHE_DIR": f"{CACHE_MOUNT}/triton",
}

STARTUP_PERIOD_SECONDS = 5
# The runtime itself ends a start that exceeds its budget and reports why; the kubelet only ends a runtime that hangs.
STARTUP_MARGIN_SECONDS = 30

# For a runtime that hangs and so would not drain the engine: the pod's own grace period, as long as the longest request, would
# hold the GPUs for nothing. A runtime that is only slow to answer can still end short requests in this time.
HANG_GRACE_SECONDS = 30

# The kernel drops a signal to PID 1 without a handler, and the kubelet sends SIGTERM once: a pod deleted while Python starts
# would load the engine and keep its GPUs for the whole grace period. Bit 14 of SigCgt is SIGTERM's.
WAIT_FOR_HANDLER = (
    "i=0; until grep -Eq '^SigCgt:.*[4-7c-f][0-9a-f]{3}$' /proc/1/status || [ $i -ge 100 ]; "
    "do i=$((i+1)); sleep 0.1; done"
)

SECURITY: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def main_container(plan: ServingPlan, request: PoolRequest) -> Manifest:
    """The engine's container. PID 1 is the runtime, which starts the engine according to the plan and watches it."""
    return {
        "name": MAIN_CONTAINER,
        "image": plan.engine.image,
        "command": ["python3", f"{RUNTIME_MOUNT}/start.py"],
        "ports": [
            {"name": names.HTTP, "containerPort": ENGINE_PORT, "protocol": "TCP"},
            {"name": names.RUNTIME, "containerPort": RUNTIME_PORT, "protocol": "TCP"},
        ],
        "env": environment(plan, request),
        "resources": resources(plan),
        "volumeMounts": _mounts(request),
        "startupProbe": _probe(
            "/startupz",
            period=STARTUP_PERIOD_SECONDS,
            failures=math.ceil((plan.runtime.startup_budget_seconds + STARTUP_MARGIN_SECONDS) / STARTUP_PERIOD_SECONDS),
            grace=HANG_GRACE_SECONDS,
        ),
        "readinessProbe": _probe(READY_PATH, period=5, failures=2),
        "livenessProbe": _probe("/livez", period=10, failures=3, grace=HANG_GRACE_SECONDS),
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", WAIT_FOR_HANDLER]}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SECURITY,
    }


def install_container(plan: ServingPlan) -> Manifest:
    """Copies the runtime into a volume, so that any SGLang image works unchanged."""
    return {
        "name": INSTALL_CONTAINER,
        "image": plan.runtime.image,
        "command": ["python3", "-m", "vlm_runtime.install", RUNTIME_MOUNT],
        "volumeMounts": [{"name": names.RUNTIME_VOLUME, "mountPath": RUNTIME_MOUNT}],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SECURITY,
    }


def environment(plan: ServingPlan, request: PoolRequest) -> list[Manifest]:
    """Variables of the engine's container: caches, secrets by reference, the plan's, then the user's in their order.

    Each name occurs once: server-side apply refuses duplicates. The user's come last, so that ``$(NAME)`` in them can refer
    to any other.
    """
    variables: dict[str, Manifest] = {name: {"name": name, "value": value} for name, value in CACHE_ENV.items()}
    if plan.hardware.device == "cpu":
        variables[ENV_DEVICE] = {"name": ENV_DEVICE, "value": "cpu"}
    if ref := request.spec.model.token_secret_ref:
        variables[ENV_HF_TOKEN] = _from_secret(ENV_HF_TOKEN, ref)
    if ref := request.spec.security.api_key_secret_ref:
        variables[ENV_API_KEY] = _from_secret(ENV_API_KEY, ref)
    for name, value in sorted(plan.engine.env.items()):
        variables[name] = {"name": name, "value": value}
    for variable in request.spec.engine.env:
        variables.pop(variable.name, None)
        variables[variable.name] = _user_variable(variable, plan)
    return list(variables.values())


def _user_variable(variable: EnvVar, plan: ServingPlan) -> Manifest:
    if variable.value_from is not None:
        return {"name": variable.name, "valueFrom": variable.value_from}
    return {"name": variable.name, "value": plan.engine.env.get(variable.name, variable.value or "")}


def _from_secret(name: str, ref: SecretKeyRef) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key}}}


def _mounts(request: PoolRequest) -> list[Manifest]:
    mounts: list[Manifest] = [
        {"name": names.RUNTIME_VOLUME, "mountPath": RUNTIME_MOUNT, "readOnly": True},
        {"name": names.PLAN_VOLUME, "mountPath": PLAN_MOUNT, "readOnly": True},
        {"name": names.SHARED_MEMORY_VOLUME, "mountPath": "/dev/shm"},
        {"name": CACHE_VOLUME, "mountPath": CACHE_MOUNT},
        {"name": names.SCRATCH_VOLUME, "mountPath": "/tmp"},
    ]
    if request.spec.model.uri.startswith(("pvc://", "oci://")):
        mounts.append({"name": names.MODEL_VOLUME, "mountPath": MODEL_MOUNT, "readOnly": True})
    return mounts


def _probe(path: str, *, period: int, failures: int, grace: int | None = None) -> dict[str, Any]:
    """A probe of the runtime, which answers at once; the engine's own health check takes seconds.

    ``grace``: seconds from the SIGTERM after too many failures to the SIGKILL; None: the pod's.
    """
    return {
        "httpGet": {"path": path, "port": names.RUNTIME},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
        **({} if grace is None else {"terminationGracePeriodSeconds": grace}),
    }


def volumes(plan: ServingPlan, request: PoolRequest) -> list[Manifest]:
    """All volumes. The name of the plan's ConfigMap is added with the hash, by ``applied_template``."""
    claim = request.spec.model.cache_claim
    cache = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    mounted: list[Manifest] = [
        {"name": names.RUNTIME_VOLUME, "emptyDir": {}},
        {"name": names.PLAN_VOLUME, "configMap": {"items": [{"key": PLAN_KEY, "path": PLAN_KEY}]}},
        {"name": names.SHARED_MEMORY_VOLUME, "emptyDir": _shared_memory(plan, request)},
        {"name": CACHE_VOLUME, **cache},
        {"name": names.SCRATCH_VOLUME, "emptyDir": {}},
    ]
    if source := _model(request.spec.model.uri):
        mounted.append({"name": names.MODEL_VOLUME, **source})
    return mounted


def claim_name(uri: str) -> str | None:
    """The claim of a model ``pvc://CLAIM/PATH``; None for any other URI."""
    return uri.removeprefix("pvc://").split("/", 1)[0] if uri.startswith("pvc://") else None


def _shared_memory(plan: ServingPlan, request: PoolRequest) -> Manifest:
    """/dev/shm. The default of 64 MiB breaks NCCL and the CPU transport; without a limit it may fill the node's memory."""
    size = request.spec.shared_memory_size
    if size is None and plan.memory.shared_memory_mib is not None:
        size = f"{plan.memory.shared_memory_mib}Mi"
    return {"medium": "Memory"} if size is None else {"medium": "Memory", "sizeLimit": str(size)}


def _model(uri: str) -> Manifest | None:
    if claim := claim_name(uri):
        return {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    if uri.startswith("oci://"):
        return {"image": {"reference": uri.removeprefix("oci://"), "pullPolicy": "IfNotPresent"}}
    return None
