"""One YAML in, and unchanged SGLang answers questions about images in a pod that the kubelet runs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest
from apiserver.operating import writes
from e2e.conftest import MODEL_NAME, Served
from e2e.endpoint import ask, bearer, engine_url, get, runtime_url
from e2e.world import START_SECONDS, Json, World, eventually

pytestmark = pytest.mark.timeout(600)

Record = Callable[[str, object], None]
# The operator asks a serving pod about itself every five minutes: over 300 s, which took that in, it was 0 writes as well.
QUIET_SECONDS = 60
# A variable of PyTorch: the engine says only its own.
NOT_SAID = "TORCHDYNAMO_DISABLE"


def test_kubectl_wait_returns_once_the_service_is_ready(applied: Served, record_property: Record) -> None:
    begun = time.monotonic()
    applied.world("wait", f"vlms/{applied.name}", "--for=condition=Ready", f"--timeout={START_SECONDS:.0f}s")
    record_property("from kubectl wait to Ready", f"{time.monotonic() - begun:.0f} s")
    status = applied.world.service(applied.name)["status"]
    assert status["url"] == f"http://{applied.name}.{applied.world.namespace}.svc:8000/v1"
    assert (status["readyReplicas"], status["updatedReplicas"], status["availableReplicas"]) == (1, 1, 1)


def test_the_namespace_admits_restricted_pods_only(served: Served) -> None:
    privileged = ["--image=x", "--dry-run=server", "--overrides", json.dumps(PRIVILEGED)]
    assert 'violates PodSecurity "restricted' in served.world.says("run", "privileged", *privileged)
    assert served.world.pod(served.name)["status"]["phase"] == "Running"
    events = served.world.items("events", "--field-selector=reason=FailedCreate")
    assert [each["message"] for each in events] == []


PRIVILEGED = {"spec": {"containers": [{"name": "x", "image": "x", "securityContext": {"privileged": True}}]}}


def test_a_question_about_an_image_is_answered_as_a_stream(served: Served, record_property: Record) -> None:
    answer = ask(served.world, served.name, model=MODEL_NAME, key=served.api_key)
    assert answer.status == 200
    assert answer.chunks >= 2
    assert answer.finish_reason in ("length", "stop")
    assert answer.model == MODEL_NAME
    record_property("time to the first token of an image question", f"{answer.first_token_seconds:.2f} s")


def test_the_served_name_is_what_clients_list(served: Served) -> None:
    models = get(f"{engine_url(served.world, served.name)}/v1/models", bearer(served.api_key)).json()
    assert [each["id"] for each in models["data"]] == [MODEL_NAME]


@pytest.mark.parametrize("key", [None, "wrong"])
def test_without_the_key_nothing_is_answered(served: Served, key: str | None) -> None:
    assert ask(served.world, served.name, model=MODEL_NAME, key=key).status == 401
    for path in ("/v1/models", "/server_info"):
        assert get(engine_url(served.world, served.name) + path, bearer(key)).status_code == 401


def test_the_engine_uses_every_planned_setting(served: Served) -> None:
    pod = served.world.pod(served.name)
    report = eventually(
        lambda: (found := get(f"{runtime_url(pod)}/report").json())["settings"] and found, "settings in the report"
    )
    planned = {s["name"]: s["value"] for s in plan(served)["settings"] if s["applied"] and s["name"] != NOT_SAID}
    assert {each["name"]: each["planned"] for each in report["settings"]} == planned
    assert [each for each in report["settings"] if not each["agrees"]] == []
    assert report["planHash"] == plan(served)["hash"]
    assert report["engineVersion"] == plan(served)["engine"]["version"]
    assert (report["phase"], report["ready"]) == ("Ready", True)
    assert report["firstImageSeconds"] > 0
    served.world.wait_for(served.name, "True", "InForce", kind="OverridesEffective", seconds=30)
    assert served.world.service(served.name)["status"]["effective"] == {
        "pod": pod["metadata"]["name"], "agrees": True, "settings": [],
    }  # fmt: skip


def plan(served: Served) -> Json:
    found: Json = served.world.service(served.name)["status"]["plan"]
    return found


def test_the_engines_and_the_runtimes_metrics_are_scraped(served: Served) -> None:
    ask(served.world, served.name, model=MODEL_NAME, key=served.api_key, max_tokens=4)
    pod = served.world.pod(served.name)
    engine = get(f"http://{pod['status']['podIP']}:8000/metrics")
    assert engine.status_code == 200
    answered = re.findall(r"^sglang:generation_tokens_total{.*} (\S+)$", engine.text, re.MULTILINE)
    assert sum(map(float, answered)) > 0
    runtime = get(f"{runtime_url(pod)}/metrics")
    assert runtime.status_code == 200
    assert 'vlm_runtime_phase{phase="Ready"} 1.0' in runtime.text
    assert "vlm_runtime_setting_mismatches 0.0" in runtime.text


def test_a_ready_service_costs_the_api_server_no_write(served: Served, record_property: Record) -> None:
    served.world.wait_for(served.name, "True", "InForce", kind="OverridesEffective", seconds=30)
    time.sleep(5)  # the events of the last change
    versions, counted = versions_of(served), written()
    time.sleep(QUIET_SECONDS)
    assert versions_of(served) == versions
    assert written() == counted
    record_property(f"writes to the API server in {QUIET_SECONDS} s of a ready service", 0)


def versions_of(served: Served) -> dict[str, str]:
    """The resource version of everything that belongs to the service, and of what was told about it."""
    kinds = "deployments,replicasets,pods,services,configmaps,endpointslices"
    found = served.world.items(kinds, "-l", f"vlmserve.dev/service={served.name}")
    told = served.world.items("events", f"--field-selector=involvedObject.name={served.name}")
    everything = [served.world.service(served.name), *found, *told]
    return {f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in everything}


def written() -> dict[str, float]:
    """Writing requests by resource, those that changed nothing too. Nodes are written by their kubelets."""
    return {resource: count for resource, count in writes(World("default")).items() if resource != "nodes"}
