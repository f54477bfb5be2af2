"""The short Job that reads a model's config.json where neither the spec nor the table of models says enough.

It runs in the service's namespace with the pod's own volume, token and proxies, so the operator itself reads no Secret
and needs no way out of the cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from vlm_api.names import ENV_HF_TOKEN, MAIN_CONTAINER, MODEL_MOUNT
from vlm_api.status import VLMService
from vlm_operator.render import names
from vlm_operator.render.container import SECURITY
from vlm_operator.render.digest import HASH_LENGTH, canonical
from vlm_operator.render.merge import merge_template
from vlm_operator.render.names import Manifest
from vlm_operator.render.pod import POD_SECURITY
from vlm_operator.render.volumes import claim_name

# A net under the operator, which gives up earlier: its own patience is INSPECT_SECONDS of the controller.
DEADLINE_SECONDS: Final = 150
# Python with the API's types takes some 40 MiB, and the index of a large mixture of experts as much again.
RESOURCES: Final[Manifest] = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"cpu": "500m", "memory": "256Mi"},
}
# Where Python looks for authorities besides its own, such as the one that signed a mirror's certificate.
AUTHORITIES: Final = frozenset({"SSL_CERT_FILE", "SSL_CERT_DIR"})
# What the engine's container is told about the way to a hub.
WAY_TO_HUB: Final = frozenset(
    {
        *AUTHORITIES,
        "HF_ENDPOINT",
        ENV_HF_TOKEN,
        *(f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "NO", "ALL")),
        *(f"{kind}_proxy" for kind in ("http", "https", "no", "all")),
    }
)
# What the user's template says about where pods run and who they are. Not what it says about GPUs.
FROM_TEMPLATE: Final = (
    "affinity",
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
)


def inspection_digest(service: VLMService) -> str:
    """Ten hex digits over everything that the Job is made from, the operator's image aside."""
    model = service.spec.model
    made_from = {"uri": model.uri, "revision": model.revision, "env": way_to_hub(service), "pod": _wishes(service)}
    if mounts := _authorities(service)[0]:
        made_from["mounts"] = mounts
    return hashlib.sha256(canonical(made_from).encode()).hexdigest()[:HASH_LENGTH]


def inspection_job(service: VLMService, image: str, owner: dict[str, Any]) -> Manifest:
    """The Job, which is made once and never changed. ``image`` is the operator's own."""
    labels = names.inspection_labels(service.name)
    metadata = {
        "name": names.inspection_name(service.name, inspection_digest(service)),
        "namespace": service.namespace,
        "labels": labels,
        "ownerReferences": [owner],
    }
    spec = {
        "backoffLimit": 1,
        "activeDeadlineSeconds": DEADLINE_SECONDS,
        "template": _template(service, image, labels),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _template(service: VLMService, image: str, labels: Mapping[str, str]) -> Manifest:
    model = service.spec.model
    command = ["python3", "-m", "vlm_operator.inspect", model.uri]
    if model.revision is not None and model.uri.startswith("hf://"):
        command += ["--revision", model.revision]
    container: Manifest = {
        "name": names.INSPECT,
        "image": image,
        "command": command,
        "env": way_to_hub(service),
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
    mounts, volumes = _authorities(service)
    if mounts:
        container.setdefault("volumeMounts", []).extend(mounts)
        pod.setdefault("volumes", []).extend(volumes)
    return merge_template({"metadata": {"labels": dict(labels)}, "spec": pod}, {"spec": _wishes(service)})


def _wishes(service: VLMService) -> Manifest:
    theirs = service.spec.template.get("spec") or {}
    return {field: theirs[field] for field in FROM_TEMPLATE if field in theirs}


def way_to_hub(service: VLMService) -> list[Manifest]:
    """The way to the hub, and out of the cluster, as the engine's container has it: each name once, secrets by reference."""
    found: dict[str, Manifest] = {}
    if ref := service.spec.model.token_secret_ref:
        source = {"secretKeyRef": {"name": ref.name, "key": ref.key}}
        found[ENV_HF_TOKEN] = {"name": ENV_HF_TOKEN, "valueFrom": source}
    for variable in service.spec.engine.env:
        value = {"value": variable.value or ""} if variable.value_from is None else {"valueFrom": variable.value_from}
        found[variable.name] = {"name": variable.name, **value}
    for entry in _main(service).get("env") or []:
        found[entry["name"]] = dict(entry)
    return [found[name] for name in sorted(found) if name in WAY_TO_HUB and "$patch" not in found[name]]


def _authorities(service: VLMService) -> tuple[list[Manifest], list[Manifest]]:
    """Mounts of the engine's container that the files of AUTHORITIES lie in, and their volumes."""
    paths = [PurePosixPath(v["value"]) for v in way_to_hub(service) if v["name"] in AUTHORITIES and v.get("value")]
    mounts = [
        dict(mount)
        for mount in _main(service).get("volumeMounts") or []
        if mount.get("mountPath")
        and "$patch" not in mount
        and any(path.is_relative_to(mount["mountPath"]) for path in paths)
    ]
    wanted = {mount.get("name") for mount in mounts} - {names.MODEL_VOLUME}
    written = (service.spec.template.get("spec") or {}).get("volumes") or []
    volumes = [dict(volume) for volume in written if volume.get("name") in wanted]
    there = {volume["name"] for volume in volumes}
    return [mount for mount in mounts if mount.get("name") in there], volumes


def _main(service: VLMService) -> Mapping[str, Any]:
    """The engine's container as the user's template says it."""
    containers = (service.spec.template.get("spec") or {}).get("containers") or []
    return next((c for c in containers if c.get("name") == MAIN_CONTAINER), {})
