"""The manifest of the Job that sends the load, from the pod template of the service that it measures.

It is the user's, not the operator's: created with the user's rights, deleted when the command ends, and owned by the
VLMService, so that it is deleted with it. If the command is killed, a deadline and a time to live end it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from vlm_api.names import CACHE_MOUNT, LABEL_MANAGED_BY, LABEL_MEASURED, MAIN_CONTAINER
from vlm_bench.load.schedule import Load, Run
from vlm_bench.load.target import COUNTERS, Target
from vlm_bench.programs import driver_command
from vlm_bench.programs.server import KEYS
from vlm_operator.errors import InvalidInput

Manifest = dict[str, Any]

BENCH: Final = "bench"
MANAGER: Final = "kubectl-vlm"

# How long the Job of a killed command stays after its end, with the twin that it owns.
KEPT_SECONDS: Final = 60
# A run may take this long for each wave of requests; a slower server does not answer.
SECONDS_PER_WAVE: Final = 600
LONGEST_SECONDS: Final = 24 * 3600
# A Job waits this much longer than its twin may take to start: the API server may be away for a minute, several times.
WAIT_SLACK_SECONDS: Final = 300
# Linux allows 128 KiB for one argument.
LONGEST_ARGUMENT: Final = 120_000

# The engine's variables for files and the hub, not for how it serves.
KEPT_VARIABLES: Final = ("HF_", "HUGGING", "TRANSFORMERS_", "SSL_CERT", "REQUESTS_CA", "PYTHONPATH", "LD_LIBRARY_PATH")
KEPT_NAMES: Final = frozenset(
    {"HOME", "USER", "XDG_CACHE_HOME", "SGLANG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
    | {f"{kind}_{end}" for kind in ("HTTP", "HTTPS", "NO", "ALL") for end in ("PROXY",)}
    | {f"{kind}_proxy" for kind in ("http", "https", "no", "all")}
)
# The load needs no GPU. Without this the NVIDIA runtime gives images that ask for "all" every GPU of the node.
NO_GPU: Final = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
CPU_PLATFORM: Final = {"name": "TORCHDYNAMO_DISABLE", "value": "1"}
# Python, PyTorch and the model's processor, without images.
PROGRAM_MIB: Final = 1024
# A request in flight is in memory three times: in the dataset, as JSON, and as the bytes sent.
COPIES_IN_FLIGHT: Final = 2

_FROM_TEMPLATE: Final = (
    "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "imagePullSecrets", "nodeSelector",
    "priorityClassName", "schedulerName", "securityContext", "serviceAccountName", "tolerations",
)  # fmt: skip
# Volumes of the operator that the load does not need, or replaces by empty ones.
_NOT_KEPT: Final = frozenset({"runtime", "plan", "cache", "shared-memory", "tmp"})


def memory_mib(load: Load, runs: Sequence[Run]) -> int:
    """The memory request of the load's pod: the program, and all images of its largest run."""
    most = max(run.requests + COPIES_IN_FLIGHT * run.concurrency for run in runs)
    return PROGRAM_MIB + -(-most * load.request_bytes // 2**20)


def bench_job(
    template: Mapping[str, Any],
    *,
    name: str,
    namespace: str,
    service: str,
    owner: Mapping[str, Any],
    targets: Sequence[Target],
    runs: Sequence[Run],
    load: Load,
    ready_seconds: int,
    image: str | None = None,
    waits_seconds: int | None = None,
) -> Manifest:
    """The Job. ``template`` is the service's own pod template; ``image`` replaces its engine's image.

    ``ready_seconds``: how long the pod waits for each target to answer. ``waits_seconds``: no pod is created until
    ``begin_patch`` is merged into the Job, for at most so long. The deadline runs from the start and at first covers only that
    wait, so that a Job whose command was killed meanwhile ends soon, with the twin that it owns. Raises InvalidInput for more
    runs than fit into an argument.
    """
    labels = {
        "app.kubernetes.io/name": "vlm-bench",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": BENCH,
        LABEL_MANAGED_BY: MANAGER,
        LABEL_MEASURED: service,
    }
    variables = [f"{KEYS}{index}" for index in range(len(targets))]
    options = {
        "targets": [target.to_json(variable) for target, variable in zip(targets, variables, strict=True)],
        "runs": [asdict(run) for run in runs],
        "load": load.to_json(),
        "counters": list(COUNTERS),
        "ready_seconds": ready_seconds,
    }
    argument = json.dumps(options)
    if len(argument) > LONGEST_ARGUMENT:
        raise InvalidInput("--rounds", f"{len(runs)} runs are too many for one Job: give fewer rounds or concurrencies")
    spec = template["spec"]
    main = next(c for c in spec["containers"] if c["name"] == MAIN_CONTAINER)
    mounts, volumes = _volumes(spec, main)
    container: Manifest = {
        "name": BENCH,
        "image": image or main["image"],
        "command": driver_command(argument),
        "env": _environment(main, targets, variables),
        "resources": {"requests": {"cpu": "250m", "memory": f"{memory_mib(load, runs)}Mi"}},
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": main.get("securityContext") or {},
    }
    if policy := main.get("imagePullPolicy"):
        container["imagePullPolicy"] = policy
    pod: Manifest = {
        **{field: spec[field] for field in _FROM_TEMPLATE if field in spec},
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": volumes,
    }
    seconds = deadline_seconds(runs, ready_seconds * len(targets))
    pause: Manifest = {}
    if waits_seconds is not None:
        seconds, pause = waits_seconds + WAIT_SLACK_SECONDS, {"parallelism": 0, "completions": 1}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [dict(owner)]},
        "spec": {
            "backoffLimit": 0,
            **pause,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def deadline_seconds(runs: Sequence[Run], before_seconds: int) -> int:
    """The deadline of a Job, whose runs begin at most ``before_seconds`` after its start."""
    waves = sum(-(-run.requests // run.concurrency) for run in runs)
    return min(SECONDS_PER_WAVE * (waves + 1) + before_seconds, LONGEST_SECONDS)


def begin_patch(runs: Sequence[Run], *, targets: int, ready_seconds: int, waits_seconds: int) -> Manifest:
    """The patch that lets a waiting Job create its pod."""
    before = ready_seconds * targets + waits_seconds + WAIT_SLACK_SECONDS
    return {"spec": {"parallelism": 1, "activeDeadlineSeconds": deadline_seconds(runs, before)}}


def _environment(main: Mapping[str, Any], targets: Sequence[Target], variables: Sequence[str]) -> list[Manifest]:
    kept = [
        dict(entry)
        for entry in main.get("env") or []
        if entry["name"] in KEPT_NAMES or entry["name"].startswith(KEPT_VARIABLES)
    ]
    keys = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": target.key.name, "key": target.key.key}}}
        for target, variable in zip(targets, variables, strict=True)
        if target.key is not None
    ]
    return [*kept, NO_GPU, CPU_PLATFORM, *keys]


def _volumes(spec: Mapping[str, Any], main: Mapping[str, Any]) -> tuple[list[Manifest], list[Manifest]]:
    """The engine container's volumes of the model and of the user, read-only, and empty ones to write to."""
    own = [{"name": "cache", "mountPath": CACHE_MOUNT}, {"name": "tmp", "mountPath": "/tmp"}]
    places = {mount["mountPath"] for mount in own}
    kept = [
        {**mount, "readOnly": True}
        for mount in main.get("volumeMounts") or []
        if mount["name"] not in _NOT_KEPT and mount["mountPath"] not in places
    ]
    names = {mount["name"] for mount in kept}
    volumes = [dict(v) for v in spec.get("volumes") or [] if v["name"] in names]
    return [*kept, *own], [*volumes, *({"name": mount["name"], "emptyDir": {}} for mount in own)]
