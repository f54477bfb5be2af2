"""A live service in a cache, gathered as the operator does."""

from typing import Any

from unit.controller.fakes import AtOnce
from unit.manifests.samples import sealed, service
from unit.plan.builders import request_of

from vlm_api.plan import ServingPlan
from vlm_api.status import VLMService
from vlm_operator import manifests as render
from vlm_operator.controller.run.cache import Cache
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service.gather import LiveService, gather
from vlm_operator.controller.service.reports import Reports
from vlm_operator.kube import kinds
from vlm_operator.kube.ownership import owner_reference

KEY = Key("default", "vlm")
RAW: dict[str, Any] = {
    "apiVersion": "vlmserve.dev/v1alpha1",
    "kind": "VLMService",
    "metadata": {"name": "vlm", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1},
    "spec": {"model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}},
}


def rendered(made: ServingPlan, of: VLMService | None = None) -> list[dict[str, Any]]:
    """The objects of a plan as the API server has them."""
    of = of or service()
    finished, template = sealed(made, of)
    found = render.objects([render.Pool(finished, template, request_of(of))], owner_reference(RAW))
    return [{**o, "metadata": {**o["metadata"], "uid": o["kind"], "resourceVersion": "3"}} for o in found]


def cache_of(*live: dict[str, Any], raw: dict[str, Any] = RAW) -> Cache:
    cache = Cache()
    cache.store(kinds.VLM_SERVICE).update(raw)
    for found in live:
        kind = kinds.POD if found["kind"] == "Pod" else kinds.kind_of(found)
        cache.store(kind).update(found)
    return cache


def gathered(*live: dict[str, Any], raw: dict[str, Any] = RAW) -> LiveService:
    found = gather(cache_of(*live, raw=raw), Reports(threads=AtOnce()), KEY)
    assert found is not None
    return found
