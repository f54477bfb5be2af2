"""The containers of the engine's pod."""

from __future__ import annotations

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
    PLAN_MOUNT,
    RUNTIME_MOUNT,
    RUNTIME_PORT,
)
from vlm_api.plan import ServingPlan
from vlm_api.spec import EnvVar, SecretKeyRef
from vlm_api.status import VLMService
from vlm_operator.render import names
from vlm_operator.render.names import Manifest
from vlm_operator.render.scheduling import resources

# Everything that libraries write goes into one volume: the root file system is read-only, and the user has no home.
# USER: getpass.getuser(), which torch calls for a cache's name, fails for a user id without an entry in /etc/passwd.
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
# The runtime ends a start at its budget itself, and says why; kubelet only ends a runtime that is stuck.
STARTUP_MARGIN_SECONDS = 30

# Of a runtime that is stuck, and so of an engine that it would not drain: kubelet would otherwise wait for as long as the
# longest request may take, with the GPUs held. For a runtime that is only slow to answer it is time to end what runs shortly.
STUCK_GRACE_SECONDS = 30

# The kernel drops a signal for PID 1 that has no handler, and the kubelet sends SIGTERM once: a pod that is deleted while
# its Python starts would load the engine and keep its GPUs for the whole grace period. Bit 14 of SigCgt is SIGTERM's.
WAIT_FOR_HANDLER = (
    "i=0; until grep -Eq '^SigCgt:.*[4-7c-f][0-9a-f]{3}$' /proc/1/status || [ $i -ge 100 ]; "
    "do i=$((i+1)); sleep 0.1; done"
)

SECURITY: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def main_container(plan: ServingPlan, service: VLMService) -> Manifest:
    """The engine's container. Its PID 1 is the runtime, which starts the engine as the plan says and watches it."""
    return {
        "name": MAIN_CONTAINER,
        "image": plan.engine.image,
        "command": ["python3", f"{RUNTIME_MOUNT}/start.py"],
        "ports": [
            {"name": names.HTTP, "containerPort": ENGINE_PORT, "protocol": "TCP"},
            {"name": names.RUNTIME, "containerPort": RUNTIME_PORT, "protocol": "TCP"},
        ],
        "env": environment(plan, service),
        "resources": resources(plan),
        "volumeMounts": _mounts(service),
        "startupProbe": _probe(
            "/startupz",
            period=STARTUP_PERIOD_SECONDS,
            failures=math.ceil((plan.runtime.startup_budget_seconds + STARTUP_MARGIN_SECONDS) / STARTUP_PERIOD_SECONDS),
            grace=STUCK_GRACE_SECONDS,
        ),
        "readinessProbe": _probe("/readyz", period=5, failures=2),
        "livenessProbe": _probe("/livez", period=10, failures=3, grace=STUCK_GRACE_SECONDS),
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", WAIT_FOR_HANDLER]}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SECURITY,
    }


def install_container(plan: ServingPlan) -> Manifest:
    """Puts the runtime beside the engine, so that any SGLang image works unchanged."""
    return {
        "name": INSTALL_CONTAINER,
        "image": plan.runtime.image,
        "command": ["python3", "-m", "vlm_runtime.install", RUNTIME_MOUNT],
        "volumeMounts": [{"name": names.RUNTIME_VOLUME, "mountPath": RUNTIME_MOUNT}],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SECURITY,
    }


def environment(plan: ServingPlan, service: VLMService) -> list[Manifest]:
    """Variables of the engine's container: caches, secrets by reference, the plan's, then the user's in their order.

    Each name once, since a later one would win anyway and server-side apply refuses two. The user's come last, so that
    ``$(NAME)`` in them can refer to any other.
    """
    variables: dict[str, Manifest] = {name: {"name": name, "value": value} for name, value in CACHE_ENV.items()}
    if plan.hardware.device == "cpu":
        variables[ENV_DEVICE] = {"name": ENV_DEVICE, "value": "cpu"}
    if ref := service.spec.model.token_secret_ref:
        variables[ENV_HF_TOKEN] = _from_secret(ENV_HF_TOKEN, ref)
    if ref := service.spec.security.api_key_secret_ref:
        variables[ENV_API_KEY] = _from_secret(ENV_API_KEY, ref)
    for name, value in sorted(plan.engine.env.items()):
        variables[name] = {"name": name, "value": value}
    for variable in service.spec.engine.env:
        variables.pop(variable.name, None)
        variables[variable.name] = _user_variable(variable, plan)
    return list(variables.values())


def _user_variable(variable: EnvVar, plan: ServingPlan) -> Manifest:
    if variable.value_from is not None:
        return {"name": variable.name, "valueFrom": variable.value_from}
    return {"name": variable.name, "value": plan.engine.env.get(variable.name, variable.value or "")}


def _from_secret(name: str, ref: SecretKeyRef) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key}}}


def _mounts(service: VLMService) -> list[Manifest]:
    mounts: list[Manifest] = [
        {"name": names.RUNTIME_VOLUME, "mountPath": RUNTIME_MOUNT, "readOnly": True},
        {"name": names.PLAN_VOLUME, "mountPath": PLAN_MOUNT, "readOnly": True},
        {"name": names.SHARED_MEMORY_VOLUME, "mountPath": "/dev/shm"},
        {"name": CACHE_VOLUME, "mountPath": CACHE_MOUNT},
        {"name": names.SCRATCH_VOLUME, "mountPath": "/tmp"},
    ]
    if service.spec.model.uri.startswith(("pvc://", "oci://")):
        mounts.append({"name": names.MODEL_VOLUME, "mountPath": MODEL_MOUNT, "readOnly": True})
    return mounts


def _probe(path: str, *, period: int, failures: int, grace: int | None = None) -> dict[str, Any]:
    """A question to the runtime, which answers at once; the engine's own health call takes seconds.

    ``grace``: seconds from the SIGTERM after too many failures to the SIGKILL; None: the pod's.
    """
    return {
        "httpGet": {"path": path, "port": names.RUNTIME},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
        **({} if grace is None else {"terminationGracePeriodSeconds": grace}),
    }
