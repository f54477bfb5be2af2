"""Who decides how many replicas there are, and whether an autoscaler can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from vlm_api.status import ConditionStatus, VLMService
from vlm_operator.controller import reasons
from vlm_operator.controller.live import workload_of
from vlm_operator.controller.observed import Observed, Verdict
from vlm_operator.kube.apply import HANDOVER_MANAGER
from vlm_operator.kube.client import Json

NEXT_STEP: Final = "the number of replicas stays as it is; see docs/autoscaling.md for what serves the metric"


def keep_count(manifests: list[Json], owned: list[Json], service: VLMService) -> list[Json]:
    """The same objects, without a number of replicas where the spec names none and somebody else has set it.

    That is so after an autoscaler of ours has gone, and while one of somebody else's, or a person, uses the workload's
    scale subresource. A number that was edited in any other way is mended.
    """
    spec = service.spec
    live = workload_of(owned, manifests)
    if spec.replicas is not None or spec.suspend or spec.scaling is not None or live is None or not _others(live):
        return manifests
    name = (live["kind"], live["metadata"]["name"])
    return [_without_count(m) if (m["kind"], m["metadata"]["name"]) == name else m for m in manifests]


def scaling_active(service: VLMService, seen: Observed) -> Verdict | None:
    """What the HorizontalPodAutoscaler says of its metric; None where the spec asks for no autoscaling."""
    if service.spec.scaling is None:
        return None
    conditions = ((seen.autoscaler or {}).get("status") or {}).get("conditions") or []
    said: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "ScalingActive"), {})
    words = f"{said.get('reason')}: {said.get('message')}"
    if said.get("status") == "True":
        return Verdict(ConditionStatus.TRUE, reasons.AUTOSCALER_ACTIVE, words)
    if said.get("status") == "False":
        if said.get("reason") == "ScalingDisabled":
            return Verdict(ConditionStatus.FALSE, reasons.AUTOSCALER_OFF, words)
        return Verdict(ConditionStatus.FALSE, reasons.METRIC_MISSING, f"{words}; {NEXT_STEP}"[:4096])
    return Verdict(ConditionStatus.UNKNOWN, reasons.AUTOSCALER_SILENT, "the HorizontalPodAutoscaler has not spoken yet")


def desired(service: VLMService, seen: Observed) -> int:
    """Replicas that are truly wanted: the workload's number where it is there, since an autoscaler may have set it."""
    spec = service.spec
    if seen.workload:
        return seen.replicas.wanted
    if spec.suspend:
        return 0
    if spec.scaling is not None:
        return spec.scaling.min_replicas
    return 1 if spec.replicas is None else spec.replicas


def autoscaler_of(owned: Iterable[Json]) -> Json | None:
    """The live HorizontalPodAutoscaler."""
    return next((o for o in owned if o["kind"] == "HorizontalPodAutoscaler"), None)


def _others(live: Mapping[str, Any]) -> bool:
    return any(
        (e.get("subresource") == "scale" or e.get("manager") == HANDOVER_MANAGER)
        and "f:replicas" in ((e.get("fieldsV1") or {}).get("f:spec") or {})
        for e in live["metadata"].get("managedFields") or []
    )


def _without_count(manifest: Json) -> Json:
    return {**manifest, "spec": {k: v for k, v in manifest["spec"].items() if k != "replicas"}}
