"""Who decides how many replicas there are, and whether an autoscaler can."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from vlm_api.status import ConditionStatus, VLMService
from vlm_operator.controller import reasons
from vlm_operator.controller.live import workload_of
from vlm_operator.controller.observed import Observed, Verdict
from vlm_operator.kube.apply import is_handed_over
from vlm_operator.kube.client import Json

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NEXT_STEP: Final = "the number of replicas stays as it is; see docs/autoscaling.md for what serves the metric"


def keep_count(manifests: list[Json], owned: list[Json], service: VLMService) -> list[Json]:
    """The same objects, without a number of replicas where an autoscaler of ours has set it and nobody says another.

    So a service whose ``scaling`` is taken out keeps the replicas that serve, until its spec says a number.
    """
    spec = service.spec
    live = workload_of(owned, manifests)
    if says_count(service) or spec.suspend or spec.scaling is not None or live is None:
        return manifests
    if autoscaler_of(owned) is None and not is_handed_over(live):
        return manifests
    name = (live["kind"], live["metadata"]["name"])
    return [_without_count(m) if (m["kind"], m["metadata"]["name"]) == name else m for m in manifests]


def says_count(service: VLMService) -> bool:
    """Whether somebody has said a number of replicas. The API server's default of 1 looks the same as a 1 in the spec.

    What a client has applied tells: by its managed fields, or by the annotation of a client-side ``kubectl apply``. Whoever
    creates an object is entered with all of its fields, defaults too, and with the model, which every service has; a later
    change is entered with what it has changed.
    """
    if service.spec.replicas not in (None, 1):
        return True
    metadata = service.metadata
    applied = (metadata.get("annotations") or {}).get(LAST_APPLIED)
    if applied is not None:
        with contextlib.suppress(ValueError, AttributeError):
            if "replicas" in (json.loads(applied).get("spec") or {}):
                return True
    entries = metadata.get("managedFields") or []
    fields = [(e.get("operation"), (e.get("fieldsV1") or {}).get("f:spec") or {}) for e in entries]
    return any("f:replicas" in f and (operation == "Apply" or "f:model" not in f) for operation, f in fields)


def scaling_active(service: VLMService, seen: Observed) -> Verdict | None:
    """What the HorizontalPodAutoscaler says of its metric; None where the spec asks for no autoscaling."""
    if service.spec.scaling is None:
        return None
    conditions = ((seen.autoscaler or {}).get("status") or {}).get("conditions") or []
    told: Mapping[str, Mapping[str, Any]] = {str(c.get("type")): c for c in conditions}
    said, limited = told.get("ScalingActive", {}), told.get("ScalingLimited", {})
    words = f"{said.get('reason')}: {said.get('message')}"
    if said.get("status") == "True":
        if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
            most = service.spec.scaling.max_replicas
            words += f"; it would have more than {most} replicas: raise spec.scaling.maxReplicas where that should be"
        return Verdict(ConditionStatus.TRUE, reasons.AUTOSCALER_ACTIVE, words)
    if said.get("status") == "False":
        if said.get("reason") == "ScalingDisabled":
            return Verdict(ConditionStatus.FALSE, reasons.AUTOSCALER_OFF, words)
        return Verdict(ConditionStatus.FALSE, reasons.METRIC_MISSING, f"{words}; {NEXT_STEP}"[:4096])
    return Verdict(ConditionStatus.UNKNOWN, reasons.AUTOSCALER_SILENT, "the HorizontalPodAutoscaler has not spoken yet")


def desired(service: VLMService, seen: Observed) -> int:
    """Replicas that are truly wanted: the workload's number where it is there, since an autoscaler may have set it."""
    spec = service.spec
    if seen.workload is not None:
        return seen.replicas.wanted
    if spec.suspend:
        return 0
    if spec.scaling is not None:
        return spec.scaling.min_replicas
    return 1 if spec.replicas is None else spec.replicas


def autoscaler_of(owned: Iterable[Json]) -> Json | None:
    """The live HorizontalPodAutoscaler."""
    return next((o for o in owned if o["kind"] == "HorizontalPodAutoscaler"), None)


def _without_count(manifest: Json) -> Json:
    return {**manifest, "spec": {k: v for k, v in manifest["spec"].items() if k != "replicas"}}
