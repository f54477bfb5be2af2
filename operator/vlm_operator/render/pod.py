"""The pod template: a plan and a service in, a PodTemplateSpec out. Nothing in it depends on the plan's hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlm_api.names import GROUP, INSTALL_CONTAINER, MAIN_CONTAINER
from vlm_api.plan import ServingPlan
from vlm_api.status import VLMService
from vlm_operator.errors import InvalidInput
from vlm_operator.render import names
from vlm_operator.render.claims import claim_template_name
from vlm_operator.render.container import install_container, main_container
from vlm_operator.render.merge import merge_template
from vlm_operator.render.names import Manifest
from vlm_operator.render.scheduling import hold_to_hardware, resources, tolerations
from vlm_operator.render.volumes import volumes

# The user of distroless images called "nonroot". The engine needs no entry in /etc/passwd, only an id that is not 0;
# this one belongs to no person and to no file of the image. fsGroup lets it write to volumes.
NON_ROOT_ID = 65532
POD_SECURITY: Manifest = {
    "runAsNonRoot": True,
    "runAsUser": NON_ROOT_ID,
    "runAsGroup": NON_ROOT_ID,
    "fsGroup": NON_ROOT_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}

# By which PodMonitors know how to ask a pod's engine; where it is not there, by http.
SCHEME_ANNOTATION = f"{GROUP}/scheme"

# What the runtime takes after the last request: the engine's own shutdown takes up to 15 s, its report a little more.
SHUTDOWN_MARGIN_SECONDS = 30


def engine_scheme(plan: ServingPlan) -> str:
    """``https`` where the engine was given a certificate of its own (``--ssl-certfile``)."""
    tls = any(arg.partition("=")[0] == "--ssl-certfile" for arg in plan.engine.args)
    return "https" if tls else "http"


def pod_template(plan: ServingPlan, service: VLMService) -> Manifest:
    """The engine's PodTemplateSpec, with ``spec.template`` merged over it.

    Raises InvalidInput where ``spec.template`` cannot be merged.
    """
    ours: Manifest = {
        "metadata": {"labels": names.object_labels(service.name)},
        "spec": {
            "initContainers": [install_container(plan)],
            "containers": [main_container(plan, service)],
            "volumes": volumes(plan, service),
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
    if found := tolerations(plan):
        spec["tolerations"] = found
    if service.spec.hardware.runtime_class_name:
        spec["runtimeClassName"] = service.spec.hardware.runtime_class_name
    if plan.hardware.claims and plan.resources.devices_per_pod > 0:
        spec["resourceClaims"] = [
            {"name": names.DEVICES, "resourceClaimTemplateName": claim_template_name(plan, service.name)}
        ]
    merged = merge_template(ours, _checked(service.spec.template, service.name))
    return _finished(merged, plan, service)


def _checked(template: Mapping[str, Any], service: str) -> Mapping[str, Any]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    reserved = names.object_labels(service)
    for label, value in labels.items():
        if label.startswith(f"{GROUP}/") or (label in reserved and value != reserved[label]):
            raise InvalidInput(
                f"spec.template.metadata.labels.{label}", "the operator sets this label: remove it, or use another name"
            )
    return template


def _finished(template: Manifest, plan: ServingPlan, service: VLMService) -> Manifest:
    spec = template["spec"]
    main = next((c for c in spec.get("containers") or [] if c.get("name") == MAIN_CONTAINER), None)
    if main is None:
        raise InvalidInput("spec.template.spec.containers", f"the container {MAIN_CONTAINER!r} must stay")
    _refuse_what_no_pod_can_be(template, main, plan, service)
    theirs = _container(service.spec.template, MAIN_CONTAINER)
    if "command" not in theirs:
        # They are engine arguments, so they are in the plan already, checked and in their place.
        main.pop("args", None)
    affinity = hold_to_hardware(spec.get("affinity") or {}, plan)
    if affinity:
        spec["affinity"] = affinity
    spec["volumes"] = _mounted(spec, plan, service)
    return template


def _refuse_what_no_pod_can_be(template: Manifest, main: Manifest, plan: ServingPlan, service: VLMService) -> None:
    """What the API server would refuse in words about the Deployment, or what could never start."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not names.object_labels(service.name).items() <= labels.items():
        raise InvalidInput(
            "spec.template.metadata.labels", "the operator's own labels must stay: add yours beside them"
        )
    init = [c.get("name") for c in template["spec"].get("initContainers") or []]
    if INSTALL_CONTAINER not in init:
        raise InvalidInput(
            "spec.template.spec.initContainers",
            f"the init container {INSTALL_CONTAINER!r} must stay, since it brings the runtime",
        )
    for container in template["spec"]["containers"]:
        if container.get("name") in init:
            raise InvalidInput(
                "spec.template.spec.initContainers",
                f"{container['name']!r} is also the name of a container: choose another",
            )
    name = plan.hardware.resource_name
    for kind, wanted in resources(plan).items():
        have = (main.get("resources") or {}).get(kind) or {}
        if kind != "claims" and name in wanted and str(have.get(name)) != wanted[name]:
            raise InvalidInput(
                f"spec.template.spec.containers[name={MAIN_CONTAINER}].resources.{kind}",
                f"{wanted[name]} {name} must stay, as the plan asks for: for another number set spec.parallelism",
            )


def _mounted(spec: Manifest, plan: ServingPlan, service: VLMService) -> list[Manifest]:
    """The volumes without those of ours that the user replaced by mounting another at the same place."""
    ours = {v["name"] for v in volumes(plan, service)}
    theirs = {v.get("name") for v in (service.spec.template.get("spec") or {}).get("volumes") or []}
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
                f"the mount at {mount.get('mountPath')} names no volume: give it a name",
            )
    used = {mount["name"] for mount in mounts}
    return [v for v in spec.get("volumes") or [] if v["name"] in used or v["name"] not in ours - theirs]


def _container(template: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    containers = (template.get("spec") or {}).get("containers") or []
    return next((c for c in containers if c.get("name") == name), {})
