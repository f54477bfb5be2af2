"""Whatever stands in a manifest, the answer is a plan or a sentence, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from unit.cli.builders import A100, H100, node, service

from vlm_api.plan import ServingPlan
from vlm_api.problems import problems
from vlm_api.status import VLMService
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.nodes import node_facts
from vlm_operator.planning import Cluster, plan_with_manifests

MAIN = {
    "name": "main",
    "env": [{"name": "SGLANG_LOG_MS", "value": "1"}],
    "resources": {"limits": {"memory": "64Gi"}},
    "volumeMounts": [{"name": "data", "mountPath": "/dev/shm"}],
}
TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["vision"]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}}
FULL = service(
    replicas=1,
    parallelism={"tensor": 1, "pipeline": 1, "data": 1},
    multinode={"nodeCount": 1},
    workload={"concurrency": 400, "images": {"perRequest": 1, "width": 512, "height": 512, "reuse": "SingleUse"}},
    hardware={"device": "cuda", "computeCapability": "9.0", "minMemoryMiB": 1000, "resourceName": "nvidia.com/gpu"},
    engine={
        "version": "0.5.23",
        "settings": {"prefill_decode_interval": 10, "SGLANG_VLM_CACHE_SIZE_MB": 100},
        "args": ["--log-requests", "--host", "::"],
        "env": [{"name": "A", "value": "b"}, {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    },
    security={"apiKeySecretRef": {"name": "k", "key": "api-key"}, "allowedMediaDomains": ["images.example.com"]},
    sharedMemorySize="16Gi",
    rolloutStrategy={"maxSurge": 0, "maxUnavailable": 1},
    template={
        "metadata": {"labels": {"team": "vision"}},
        "spec": {
            "nodeSelector": {},
            "tolerations": [{"key": "team", "operator": "Exists"}],
            "containers": [MAIN],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "affinity": AFFINITY,
        },
    },
)
NODES = [node("hopper", H100 | {"pool": "vision"}), node("old", A100), node("cpu", {}, 0)]
WORDS = st.sampled_from(
    [
        "",
        "x",
        "x y",
        "16Gi",
        "9.0",
        "Off",
        "cpu",
        "main",
        "--host",
        "--tp-size",
        "--config",
        "--mem-fraction-static=2",
        "1.2.3",
    ]
)
SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 100_000) | st.floats(allow_nan=False, allow_infinity=False) | WORDS
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS | st.just("name"), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a manifest, at every depth."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*place, key)
        yield from places(child, (*place, key))


PLACES = sorted(places(FULL["spec"]), key=str)


def answer_to(manifest: dict[str, Any]) -> ServingPlan | list[str]:
    """The plan, or what is wrong."""
    try:
        found = VLMService.model_validate(manifest)
        facts = tuple(node_facts(each, (), found.spec.hardware.resource_name) for each in NODES)
        return plan_with_manifests(found, Cluster(facts), runtime_image="operator:1")
    except ValidationError as error:
        return [str(problem) for problem in problems(error, VLMService)]
    except InvalidInput as error:
        return [str(error)]


@settings(max_examples=400, deadline=None)
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=2))
def test_a_manifest_gets_a_plan_or_sentences(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    manifest = deepcopy(FULL)
    for place, junk in changes:
        holder = manifest["spec"]
        try:
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue  # the change before took this place away
    answer = answer_to(manifest)
    if isinstance(answer, ServingPlan):
        assert json.loads(json.dumps(answer.to_api(), allow_nan=False))["kind"] == "ServingPlan"
        assert bool(answer.manifests) != bool(answer.errors)
    else:
        assert answer
        assert all(each.startswith("spec") and "Input should" not in each and "\n" not in each for each in answer)
