"""What goes wrong with an engine in a pod: it is said in the service's status, and ends without help or with a new spec."""

import json
import re
import time
from collections.abc import Callable

import pytest
from e2e import services
from e2e.conftest import MODEL_NAME, SERVED, Served
from e2e.endpoint import ask, engine_url, get, runtime_url
from e2e.world import OPERATOR, OPERATOR_NAMESPACE, Json, World, eventually, main_status

from vlm_api.reasons import FAILURES

pytestmark = pytest.mark.timeout(600)

# Run in the container; kills what the test names by the beginning of its command line, never itself.
KILL = """
import os, pathlib, sys
wanted = sys.argv[1].encode()
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    command = path.read_bytes().replace(b"\\0", b" ")
    if wanted in command and int(path.parent.name) != os.getpid():
        os.kill(int(path.parent.name), 9)
        break
else:
    sys.exit("no process " + sys.argv[1])
"""


def kill(world: World, pod: Json, process: str) -> None:
    said = world.says("exec", pod["metadata"]["name"], "-c", "main", "--", "python3", "-c", KILL, process)
    assert "no process" not in said, said


@pytest.mark.parametrize(
    ("process", "reason"), [("-m sglang.launch_server", "EngineKilled"), ("sglang::scheduler", "SchedulerDied")]
)
def test_a_killed_engine_is_explained_and_started_again(
    served: Served, process: str, reason: str, record_property: Callable[[str, object], None]
) -> None:
    world, name = served.world, served.name
    before = world.pod(name)
    begun = time.monotonic()
    kill(world, before, process)
    ended = eventually(lambda: restarted(world.pod(name), before), "the container is restarted", seconds=60)
    record_property(f"from kill -9 of {process} to the restarted container", f"{time.monotonic() - begun:.1f} s")
    assert ended["exitCode"] == 1
    said = json.loads(ended["message"])
    assert said["reason"] == reason
    assert said["message"].startswith(FAILURES[reason])
    assert world.wait_for(name, "False", reason) == said["message"]
    eventually(lambda: reason in warnings(world, name), "a Warning event")
    world.wait_until_ready(name)
    assert world.pod(name)["metadata"]["uid"] == before["metadata"]["uid"]
    assert ask(world, name, model=MODEL_NAME, key=served.api_key).finish_reason in ("length", "stop")


def restarted(pod: Json, before: Json) -> Json | None:
    """How the container ended that was replaced by another one in the same pod."""
    now = main_status(pod)
    if now.get("restartCount", 0) <= main_status(before)["restartCount"] or "running" not in now["state"]:
        return None
    return now["lastState"]["terminated"]


def warnings(world: World, name: str) -> set[str]:
    found = world.items("events", f"--field-selector=type=Warning,involvedObject.name={name}")
    return {each["reason"] for each in found}


def test_no_secret_is_shown_anywhere(served: Served) -> None:
    """After the ends above: the logs of ended containers and their termination messages are looked at as well."""
    world, name = served.world, served.name
    pod = world.pod(name)
    shown = {
        "service, plan and status": world("get", "vlms", name, "-o", "yaml"),
        "objects": world("get", "deployments,replicasets,pods,services,configmaps", "-o", "yaml"),
        "events": world("get", "events", "-o", "yaml") + world("get", "events.events.k8s.io", "-o", "yaml"),
        "log": world("logs", pod["metadata"]["name"], "--all-containers"),
        "log before": world.says("logs", pod["metadata"]["name"], "-c", "main", "--previous"),
        "operator": World(OPERATOR_NAMESPACE)("logs", f"deployment/{OPERATOR}"),
        "report": get(f"{runtime_url(pod)}/report").text,
        "runtime's metrics": get(f"{runtime_url(pod)}/metrics").text,
        "engine's metrics": get(f"{engine_url(world, name)}/metrics").text,
        "operator's metrics": operator_metrics(),
    }
    # The engine prints its key: without this, a log that lacks these lines would pass.
    assert re.search(r"api_key\W+\[redacted\]", shown["log"])
    for place, text in shown.items():
        assert text.strip(), place
        for secret in (served.api_key, served.hub_token):
            assert secret not in text, place


def operator_metrics() -> str:
    (pod,) = World(OPERATOR_NAMESPACE).items("pods", "-l", "app.kubernetes.io/name=vlm-operator")
    return get(f"http://{pod['status']['podIP']}:8080/metrics").text


def test_a_pod_that_is_deleted_while_it_loads_is_gone_at_once(
    served: Served, record_property: Callable[[str, object], None]
) -> None:
    world, name = served.world, served.name
    first = world.pod(name)["metadata"]["name"]
    world("delete", "pod", first, "--wait=false")
    loading = eventually(lambda: loading_pod(world, name, first), "an engine that loads", seconds=120)
    begun = time.monotonic()
    world("delete", "pod", loading, "--timeout=60s")
    seconds = time.monotonic() - begun
    record_property("from deleting a pod that loads to its end", f"{seconds:.1f} s")
    assert seconds < 10


def test_a_pod_that_is_deleted_as_its_container_starts_is_gone_at_once(applied: Served) -> None:
    """The kernel drops a signal that comes before PID 1 has a handler for it, and the kubelet sends only one."""
    world, name = applied.world, applied.name
    world.pause_others(name)
    seen: set[str] = set()
    for _ in range(4):
        starting = eventually(lambda: starting_pod(world, name, seen), "a pod whose container starts", pause=0.02)
        seen.add(starting)
        world("delete", "pod", starting, "--timeout=15s")


def starting_pod(world: World, name: str, but_not: set[str]) -> str | None:
    for pod in world.pods(name):
        found = str(pod["metadata"]["name"])
        (install,) = pod["status"].get("initContainerStatuses") or [{}]
        if found not in but_not and "terminated" in install.get("state", {}):
            return found
    return None


def loading_pod(world: World, name: str, but_not: str) -> str | None:
    for pod in world.pods(name):
        found = str(pod["metadata"]["name"])
        if found != but_not and "running" in main_status(pod).get("state", {}):
            return found if "server_args=" in world.says("logs", found, "-c", "main") else None
    return None


def test_a_broken_revision_is_explained_and_does_not_block_the_next(applied: Served) -> None:
    world, name = applied.world, applied.name
    world.pause_others(name)

    # A flag that this version is known to have, in an image that holds a later one: the checks cannot see it.
    flag = "--keep-mm-feature-on-device"
    world.apply(name, services.cpu_with_engine(version="0.5.20", args=[flag]))
    assert flag in world.wait_for(name, "False", "BadArgument", seconds=120)
    waiting = eventually(
        lambda: main_status(world.pod(name))["state"].get("waiting"), "the kubelet waits with the next try", seconds=90
    )
    assert waiting["reason"] == "CrashLoopBackOff"
    assert world.condition(name)[1] == "BadArgument"

    # Half of what the engine's libraries alone take. Only the engine is killed, so the runtime can say it.
    small = services.cpu()
    small["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"memory": "64Mi"},
        "limits": {"memory": "300Mi"},
    }
    world.apply(name, small)
    assert "memory" in world.wait_for(name, "False", "OutOfHostMemory", seconds=120)

    world.apply(name, services.cpu(model={"uri": "pvc://models/not-there"}))
    said = world.wait_for(name, "False", "ModelNotFound", seconds=120)
    assert "so the change is not applied" in said
    assert "the claim has no folder /not-there: correct spec.model.uri" in said
    assert world.condition(name, "ModelReady")[:2] == ("False", "ModelNotFound")

    world.apply(name, services.cpu())
    world.wait_until_ready(name)
    assert ask(world, name, model=SERVED).finish_reason in ("length", "stop")
