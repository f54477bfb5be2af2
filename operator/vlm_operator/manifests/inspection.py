"""The short Job that reads a model's config.json if neither the spec nor the table of models says enough.

It runs in the service's namespace with the volume, token and proxies of the engine's pod, so the operator itself reads no
Secret and needs no egress from the cluster.
"""

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from vlm_api.names import ENV_HF_TOKEN, MAIN_CONTAINER, MODEL_MOUNT
from vlm_operator.manifests import names
from vlm_operator.manifests.names import Manifest
from vlm_operator.manifests.pod.container import SECURITY, claim_name
from vlm_operator.manifests.pod.merge import merge_template
from vlm_operator.manifests.pod.template import POD_SECURITY
from vlm_operator.plan.digest import HASH_LENGTH, canonical
from vlm_operator.plan.request import PoolRequest

# A fallback: the operator gives up earlier, after the controller's INSPECT_SECONDS.
DEADLINE_SECONDS: Final = 150
# Python with the API's types takes about 40 MiB, and the index of a large mixture of experts as much again.
RESOURCES: Final[Manifest] = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"cpu": "500m", "memory": "256Mi"},
}
# Python's variables for further certificate authorities, such as the one of a mirror.
AUTHORITIES: Final = frozenset({"SSL_CERT_FILE", "SSL_CERT_DIR"})
# Variables of the engine's container that the download from a hub depends on.
HUB_VARIABLES: Final = frozenset(
    {
        *AUTHORITIES,
        "HF_ENDPOINT",
        ENV_HF_TOKEN,
        *(f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "NO", "ALL")),
        *(f"{kind}_proxy" for kind in ("http", "https", "no", "all")),
    }
)
# Fields of the user's template for where pods run and as whom, without what it says about GPUs.
FROM_TEMPLATE: Final = (
    "affinity", "dnsConfig", "dnsPolicy", "hostAliases", "imagePullSecrets", "nodeSelector", "priorityClassName",
    "schedulerName", "securityContext", "serviceAccountName", "tolerations",
)  # fmt: skip


def inspection_digest(request: PoolRequest) -> str:
    """Ten hex digits over everything that the Job is made from, except the operator's image."""
    model = request.spec.model
    made_from = {
        "uri": model.uri,
        "revision": model.revision,
        "env": hub_environment(request),
        "pod": _template_fields(request),
    }
    if mounts := _authorities(request)[0]:
        made_from["mounts"] = mounts
    return hashlib.sha256(canonical(made_from).encode()).hexdigest()[:HASH_LENGTH]


def inspection_job(request: PoolRequest, image: str, owner: dict[str, Any]) -> Manifest:
    """The Job, which is created once and never changed. ``image`` is the operator's own."""
    labels = names.inspection_labels(request.service)
    metadata = {
        "name": names.inspection_name(request.service, inspection_digest(request)),
        "namespace": request.namespace,
        "labels": labels,
        "ownerReferences": [owner],
    }
    spec = {"backoffLimit": 1, "activeDeadlineSeconds": DEADLINE_SECONDS, "template": _template(request, image, labels)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _template(request: PoolRequest, image: str, labels: Mapping[str, str]) -> Manifest:
    model = request.spec.model
    command = ["python3", "-m", "vlm_operator.inspect", model.uri]
    if model.revision is not None and model.uri.startswith("hf://"):
        command += ["--revision", model.revision]
    container: Manifest = {
        "name": names.INSPECT,
        "image": image,
        "command": command,
        "env": hub_environment(request),
        "resources": RESOURCES,
        "securityContext": SECURITY,
    }
    pod: Manifest = {
        "restartPolicy": "Never",
        "containers": [container],
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": POD_SECURITY,
    }
    if claim := claim_name(model.uri):
        container["volumeMounts"] = [{"name": names.MODEL_VOLUME, "mountPath": MODEL_MOUNT, "readOnly": True}]
        source = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        pod["volumes"] = [{"name": names.MODEL_VOLUME, **source}]
    mounts, volumes = _authorities(request)
    if mounts:
        container.setdefault("volumeMounts", []).extend(mounts)
        pod.setdefault("volumes", []).extend(volumes)
    return merge_template({"metadata": {"labels": dict(labels)}, "spec": pod}, {"spec": _template_fields(request)})


def _template_fields(request: PoolRequest) -> Manifest:
    theirs = request.spec.template.get("spec") or {}
    return {field: theirs[field] for field in FROM_TEMPLATE if field in theirs}


def hub_environment(request: PoolRequest) -> list[Manifest]:
    """The HUB_VARIABLES as the engine's container has them: each name once, secrets by reference."""
    variables: dict[str, Manifest] = {}
    if ref := request.spec.model.token_secret_ref:
        source = {"secretKeyRef": {"name": ref.name, "key": ref.key}}
        variables[ENV_HF_TOKEN] = {"name": ENV_HF_TOKEN, "valueFrom": source}
    for variable in request.spec.engine.env:
        value = {"value": variable.value or ""} if variable.value_from is None else {"valueFrom": variable.value_from}
        variables[variable.name] = {"name": variable.name, **value}
    for entry in _main(request).get("env") or []:
        variables[entry["name"]] = dict(entry)
    return [variables[name] for name in sorted(variables) if name in HUB_VARIABLES and "$patch" not in variables[name]]


def _authorities(request: PoolRequest) -> tuple[list[Manifest], list[Manifest]]:
    """Mounts of the engine's container with the files of AUTHORITIES, and their volumes."""
    paths = [PurePosixPath(v["value"]) for v in hub_environment(request) if v["name"] in AUTHORITIES and v.get("value")]
    mounts = [
        dict(mount)
        for mount in _main(request).get("volumeMounts") or []
        if mount.get("mountPath")
        and "$patch" not in mount
        and any(path.is_relative_to(mount["mountPath"]) for path in paths)
    ]
    wanted = {mount.get("name") for mount in mounts} - {names.MODEL_VOLUME}
    written = (request.spec.template.get("spec") or {}).get("volumes") or []
    volumes = [dict(volume) for volume in written if volume.get("name") in wanted]
    present = {volume["name"] for volume in volumes}
    return [mount for mount in mounts if mount.get("name") in present], volumes


def _main(request: PoolRequest) -> Mapping[str, Any]:
    """The engine's container in the user's template."""
    containers = (request.spec.template.get("spec") or {}).get("containers") or []
    return next((c for c in containers if c.get("name") == MAIN_CONTAINER), {})
