"""The pod template: a plan and a request in, a PodTemplateSpec out. It depends neither on the plan's hash nor on the pool."""

from collections.abc import Mapping
from typing import Any

from vlm_api.names import GROUP, INSTALL_CONTAINER, MAIN_CONTAINER
from vlm_api.plan import ServingPlan
from vlm_operator.errors import InvalidInput
from vlm_operator.manifests import names
from vlm_operator.manifests.names import Manifest
from vlm_operator.manifests.pod.container import install_container, main_container, volumes
from vlm_operator.manifests.pod.merge import merge_template
from vlm_operator.manifests.pod.scheduling import claim_template_name, hold_to_hardware, resources, tolerations
from vlm_operator.plan.request import PoolRequest

# The user "nonroot" of distroless images. The engine needs no entry in /etc/passwd, only an id other than 0 that owns no file
# of the image. fsGroup lets it write to volumes.
NON_ROOT_ID = 65532
POD_SECURITY: Manifest = {
    "runAsNonRoot": True,
    "runAsUser": NON_ROOT_ID,
    "runAsGroup": NON_ROOT_ID,
    "fsGroup": NON_ROOT_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}

# PodMonitors read the scheme of a pod's engine from it; without it the scheme is http.
SCHEME_ANNOTATION = f"{GROUP}/scheme"

# Time after the last request: the engine's own shutdown takes up to 15 s, the runtime's report a little more.
SHUTDOWN_MARGIN_SECONDS = 30


def engine_scheme(plan: ServingPlan) -> str:
    """``https`` if the engine has a certificate (``--ssl-certfile``), else ``http``."""
    return plan.engine.scheme


def pod_template(plan: ServingPlan, request: PoolRequest) -> Manifest:
    """The engine's PodTemplateSpec, with ``spec.template`` merged over it. Raises InvalidInput if that gives no valid pod."""
    ours: Manifest = {
        "metadata": {"labels": names.object_labels(request.service)},
        "spec": {
            "initContainers": [install_container(plan)],
            "containers": [main_container(plan, request)],
            "volumes": volumes(plan, request),
            "terminationGracePeriodSeconds": plan.runtime.drain_seconds + SHUTDOWN_MARGIN_SECONDS,
            # A Service called "sglang" would put SGLANG_PORT=tcp://... into the pod, which the engine reads as its own.
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "securityContext": POD_SECURITY,
        },
    }
    if (scheme := engine_scheme(plan)) != "http":
        ours["metadata"]["annotations"] = {SCHEME_ANNOTATION: scheme}
    spec = ours["spec"]
    if tolerated := tolerations(plan):
        spec["tolerations"] = tolerated
    if request.spec.hardware.runtime_class_name:
        spec["runtimeClassName"] = request.spec.hardware.runtime_class_name
    if plan.hardware.claims and plan.resources.devices_per_pod > 0:
        spec["resourceClaims"] = [
            {"name": names.DEVICES, "resourceClaimTemplateName": claim_template_name(plan, request)}
        ]
    merged = merge_template(ours, _checked(request.spec.template, request.service))
    return _finished(merged, plan, request)


def _checked(template: Mapping[str, Any], service: str) -> Mapping[str, Any]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    reserved = names.object_labels(service)
    for label, value in labels.items():
        if label.startswith(f"{GROUP}/") or (label in reserved and value != reserved[label]):
            raise InvalidInput(
                f"spec.template.metadata.labels.{label}",
                "the operator sets this label: remove it, or choose another name",
            )
    return template


def _finished(template: Manifest, plan: ServingPlan, request: PoolRequest) -> Manifest:
    spec = template["spec"]
    main = next((c for c in spec.get("containers") or [] if c.get("name") == MAIN_CONTAINER), None)
    if main is None:
        raise InvalidInput(
            "spec.template.spec.containers", f"the container {MAIN_CONTAINER!r} runs the engine: remove what deletes it"
        )
    _refuse_invalid(template, main, plan, request)
    theirs = _container(request.spec.template, MAIN_CONTAINER)
    if "command" not in theirs:
        # Arguments of the engine: they are in the plan already, checked and in their order.
        main.pop("args", None)
    affinity = hold_to_hardware(spec.get("affinity") or {}, plan)
    if affinity:
        spec["affinity"] = affinity
    spec["volumes"] = _mounted(spec, plan, request)
    return template


def _refuse_invalid(template: Manifest, main: Manifest, plan: ServingPlan, request: PoolRequest) -> None:
    """Refuses what the API server would reject with a message about the Deployment, and what could never start."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not names.object_labels(request.service).items() <= labels.items():
        raise InvalidInput(
            "spec.template.metadata.labels", "removes labels of the operator: add labels without replacing the others"
        )
    init = [c.get("name") for c in template["spec"].get("initContainers") or []]
    if INSTALL_CONTAINER not in init:
        raise InvalidInput(
            "spec.template.spec.initContainers",
            f"the init container {INSTALL_CONTAINER!r} installs the runtime: remove what deletes it",
        )
    for container in template["spec"]["containers"]:
        if container.get("name") in init:
            raise InvalidInput(
                "spec.template.spec.initContainers",
                f"{container['name']!r} is also the name of a container: choose another name",
            )
    name = plan.hardware.resource_name
    for kind, wanted in resources(plan).items():
        have = (main.get("resources") or {}).get(kind) or {}
        if kind != "claims" and name in wanted and str(have.get(name)) != wanted[name]:
            raise InvalidInput(
                f"spec.template.spec.containers[name={MAIN_CONTAINER}].resources.{kind}",
                f"the plan requests {wanted[name]} {name}: remove this field, or set spec.parallelism for another number",
            )


def _mounted(spec: Manifest, plan: ServingPlan, request: PoolRequest) -> list[Manifest]:
    """The volumes without those of ours that no container mounts any more, since the user mounts others in their place."""
    ours = {v["name"] for v in volumes(plan, request)}
    theirs = {v.get("name") for v in (request.spec.template.get("spec") or {}).get("volumes") or []}
    mounts = [
        mount
        for kind in ("initContainers", "containers")
        for container in spec.get(kind) or []
        for mount in container.get("volumeMounts") or []
    ]
    for mount in mounts:
        if not mount.get("name"):
            raise InvalidInput(
                "spec.template.spec.containers",
                f"the mount at {mount.get('mountPath')} has no name: set the name of its volume",
            )
    used = {mount["name"] for mount in mounts}
    return [v for v in spec.get("volumes") or [] if v["name"] in used or v["name"] not in ours - theirs]


def _container(template: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    containers = (template.get("spec") or {}).get("containers") or []
    return next((c for c in containers if c.get("name") == name), {})
