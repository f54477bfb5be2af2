"""One YAML in, and unchanged SGLang answers questions about images in a pod that the kubelet runs."""

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from apiserver.operating import writes
from e2e import services
from e2e.conftest import MODEL_NAME, Served
from e2e.endpoint import ask, bearer, engine_url, get, runtime_url
from e2e.world import START_SECONDS, Json, World, eventually

from minicluster.paths import KUBECONFIG
from minicluster.shell import attempt

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
    assert report["settingsRead"] is True
    assert report["notReported"] == [NOT_SAID]
    planned = {s["name"]: s["value"] for s in plan(served)["settings"] if s["applied"] and s["name"] != NOT_SAID}
    assert {each["name"]: each["planned"] for each in report["settings"]} == planned
    assert [each for each in report["settings"] if not each["agrees"]] == []
    assert report["planHash"] == plan(served)["hash"]
    assert report["engineVersion"] == plan(served)["engine"]["version"]
    assert (report["phase"], report["ready"]) == ("Ready", True)
    assert report["firstImageSeconds"] > 0
    message = served.world.wait_for(served.name, "True", "InForce", kind="OverridesEffective", seconds=30)
    assert message == f"1 pod uses every planned setting; not reported by the engine: {NOT_SAID}"
    assert served.world.service(served.name)["status"]["effective"] == {
        "pod": pod["metadata"]["name"], "agrees": True, "settings": [], "notReported": [NOT_SAID], "engineDefaults": [],
    }  # fmt: skip
    # What the plan expects of an engine that is left alone is what this one chose.
    expected = {s["name"]: s["expected"] for s in plan(served)["settings"] if s.get("expected") is not None}
    chosen = {s["name"]: s for s in report["engineDefaults"] if s["effective"] is not None}
    assert len(expected.keys() & chosen.keys()) >= 3
    assert [s for s in chosen.values() if not s["agrees"]] == []
    assert f"Every reported value matches the plan (pod {pod['metadata']['name']})." in explained(served)


def explained(served: Served) -> str:
    return kubectl_vlm(served.world, "explain", served.name)


def kubectl_vlm(world: World, command: str, name: str) -> str:
    """What kubectl-vlm of this checkout prints."""
    program = Path(sys.executable).parent / "kubectl-vlm"
    arguments = [program, command, name, "--namespace", world.namespace, f"--kubeconfig={KUBECONFIG}"]
    done = attempt(arguments, env={"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def plan(served: Served) -> Json:
    return served.world.service(served.name)["status"]["plan"]


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


IGNORING = "ignores-a-wish"
# More than the KV cache of 8,192 tokens can hold: the engine takes half of the tokens, and goes on without an error.
WISHED, CUT = 5000, 4096
TOLD_SECONDS = 30.0


@pytest.fixture(scope="module")
def ignoring(world: World, free_processors: None) -> World:
    """A service on its way whose engine will not do what is planned."""
    world.pause_others(IGNORING)
    world.apply(IGNORING, services.cpu_with_engine(settings={"max_running_requests": WISHED}))
    return world


def test_a_start_is_shown_with_its_phases_and_its_budget(ignoring: World) -> None:
    def loading() -> Json | None:
        startup: Json = ignoring.service(IGNORING).get("status", {}).get("startup") or {}
        return startup if startup.get("phase") not in (None, "Pulling", "CheckingHardware") else None

    startup = eventually(loading, "a phase of the engine's start", seconds=90)
    assert startup["pod"] == ignoring.pod(IGNORING)["metadata"]["name"]
    assert [phase["phase"] for phase in startup["phases"]][:2] == ["Pulling", "CheckingHardware"]
    assert startup["budgetReason"].startswith("900 s for the engine's start, graphs and warm-up")
    told = kubectl_vlm(ignoring, "status", IGNORING)
    assert re.search(r"^  Pulling +\d+ s +pulling images", told, re.MULTILINE), told
    assert re.search(r"[█░]+  \d+ s of at most 960 s  step \d of 8$", told, re.MULTILINE), told


def test_a_planned_setting_that_the_engine_ignores_shows_both_values_soon_after_ready(
    ignoring: World, record_property: Record
) -> None:
    ready = eventually(lambda: became(ignoring.pod(IGNORING), "Ready"), "a ready pod", seconds=START_SECONDS)
    message = ignoring.wait_for(
        IGNORING, "False", "EngineIgnoredSetting", kind="OverridesEffective", seconds=TOLD_SECONDS
    )
    told = became(ignoring.service(IGNORING), "OverridesEffective", "False")
    assert told is not None
    seconds = (told - ready).total_seconds()
    record_property("from a ready pod to the setting that its engine ignores", f"{seconds:.0f} s")
    assert seconds <= TOLD_SECONDS
    both = f"max_running_requests is {CUT} instead of {WISHED}"
    assert both in message
    effective = ignoring.service(IGNORING)["status"]["effective"]
    assert effective["agrees"] is False
    assert effective["settings"] == [{"name": "max_running_requests", "planned": WISHED, "effective": CUT}]
    ignoring.wait_for(IGNORING, "False", "EngineIgnoredSetting")
    note = eventually(lambda: warning(ignoring, "EngineIgnoredSetting"), "a Warning event")
    assert both in note
    lines = kubectl_vlm(ignoring, "explain", IGNORING).splitlines()
    assert f"  max_running_requests: planned {WISHED}, in force {CUT}" in lines
    metrics = get(f"{runtime_url(ignoring.pod(IGNORING))}/metrics").text
    assert "vlm_runtime_setting_mismatches 1.0" in metrics
    assert 'vlm_runtime_setting_effective{setting="max_running_requests"} 0.0' in metrics


def became(thing: Json, condition: str, status: str = "True") -> datetime | None:
    """When a condition got that status; None where it has not."""
    for each in thing.get("status", {}).get("conditions", []):
        if (each["type"], each["status"]) == (condition, status):
            return datetime.fromisoformat(each["lastTransitionTime"].replace("Z", "+00:00"))
    return None


def warning(world: World, reason: str) -> str | None:
    """What the newest Warning event of that reason says of the service."""
    found = world.items("events", f"--field-selector=type=Warning,reason={reason},involvedObject.name={IGNORING}")
    return str(found[-1]["message"]) if found else None
