"""Reads live objects: the VLMService, its status, and the plan that its workload runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from vlm_api.model import Inspection
from vlm_api.names import LABEL_PLAN, LABEL_SERVICE, PLAN_KEY, POD_TEMPLATE_KEY
from vlm_api.plan import ServingPlan
from vlm_api.problems import problems
from vlm_api.spec import ModelSpec, VLMServiceSpec
from vlm_api.status import VLMService, VLMServiceStatus
from vlm_operator.errors import InvalidInput
from vlm_operator.kube.client import Json
from vlm_operator.kube.ownership import owner_name
from vlm_operator.planning import StoredPlan
from vlm_operator.render.names import plan_name

log = logging.getLogger(__name__)


def parse(raw: Mapping[str, Any]) -> VLMService:
    """The live object as a VLMService, without its status. Raises InvalidInput with the first error."""
    try:
        return VLMService.model_validate({k: v for k, v in raw.items() if k != "status"})
    except ValidationError as error:
        first = problems(error, VLMService)[0]
        raise InvalidInput(first.path, first.message) from None


def parse_status(raw: Mapping[str, Any]) -> VLMServiceStatus | None:
    """The status as another version of the operator may have written it; None where nothing can be made of it."""
    try:
        return VLMServiceStatus.model_validate(raw["status"], extra="ignore") if raw.get("status") else None
    except ValidationError:
        return None


def recorded_inspection(raw: Mapping[str, Any]) -> Inspection | None:
    """What the status says that was read from the model's files."""
    try:
        found = (raw.get("status") or {}).get("model")
        return Inspection.model_validate(found, extra="ignore") if found else None
    except ValidationError:
        return None


def previous_plan(owned: list[Json]) -> StoredPlan | None:
    """The plan that the live workload's pods run, read from its ConfigMap; None where either is missing or unreadable.

    Fields that a newer operator has added to a plan are left aside, so that going back to an older one works.
    """
    workload = workload_of(owned)
    if workload is None:
        return None
    spec = workload["spec"]
    template = spec.get("template") or spec["leaderWorkerTemplate"]["workerTemplate"]
    plan_hash = (template["metadata"].get("labels") or {}).get(LABEL_PLAN)
    # By its owner: its own labels are anybody's to change.
    service = owner_name(workload) or (workload["metadata"].get("labels") or {}).get(LABEL_SERVICE)
    name = plan_name(str(service), str(plan_hash))
    for config_map in owned:
        if config_map["kind"] == "ConfigMap" and config_map["metadata"]["name"] == name:
            data = config_map.get("data") or {}
            try:
                plan = ServingPlan.model_validate_json(data[PLAN_KEY], extra="ignore")
                return StoredPlan(plan, json.loads(data[POD_TEMPLATE_KEY]))
            except (KeyError, ValueError):
                log.warning("plan %s cannot be read: a new one is made", plan_hash)
    return None


def word_for_word(manifests: list[Json], owned: list[Json]) -> list[Json]:
    """The same objects, with a plan that stays as it was written, maybe by another release. Written in other words it would
    have to be deleted first, and an operator that ends in between has lost what it must not replace."""
    written = {o["metadata"]["name"]: o.get("data") for o in owned if o["kind"] == "ConfigMap"}
    return [
        {**m, "data": written[m["metadata"]["name"]]}
        if m["kind"] == "ConfigMap" and written.get(m["metadata"]["name"])
        else m
        for m in manifests
    ]


def workload_of(owned: list[Json], manifests: list[Json] | None = None) -> Json | None:
    """The live Deployment or LeaderWorkerSet; with ``manifests`` the one that is wanted."""
    names = {"Deployment", "LeaderWorkerSet"}
    if manifests is not None:
        names &= {m["kind"] for m in manifests}
    return next((o for o in owned if o["kind"] in names), None)


def unreadable(raw: Json) -> VLMService:
    """A stand-in with the object's names, for the status of a service whose spec cannot be read."""
    spec = VLMServiceSpec(model=ModelSpec(uri="file:///unknown"))
    return VLMService.model_construct(metadata=raw["metadata"], spec=spec)
