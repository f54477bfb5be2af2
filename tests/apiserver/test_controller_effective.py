"""The operator reads a pod's report and reports what differs from the plan. The engine is simulated."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from apiserver.operating import World, eventually

from vlm_api.names import RUNTIME_PORT
from vlm_api.report import EffectiveSetting, EngineDefault, FeaturePool
from vlm_runtime.report.state import RuntimeState
from vlm_runtime.sglang.effective import Comparison

# A loopback address of its own: the operator asks pods on a port that is part of the API.
ADDRESS = "127.83.64.17"
SECONDS = 30
NODES = ("hopper",)
pytestmark = pytest.mark.usefixtures("operator")


class Runtime:
    """The runtime of the pod ``vlm-0``, without its engine."""

    def __init__(self) -> None:
        self.state = RuntimeState("", 900)
        runtime = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = runtime.state.report().model_dump_json(by_alias=True).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer((ADDRESS, RUNTIME_PORT), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def starts(self, plan_hash: str) -> None:
        """As after the container's start."""
        self.state = RuntimeState(plan_hash, 900)

    def serves(self, *, interval: int) -> None:
        """The engine was asked, and uses this ``prefill_decode_interval``."""
        used = EffectiveSetting(name="prefill_decode_interval", planned=22, effective=interval, agrees=interval == 22)
        left = EngineDefault(name="attention_backend", expected="fa3", effective="flashinfer", agrees=False)
        self.state.set_feature_pool(FeaturePool(planned_bytes=3072 << 20, size_bytes=3072 << 20))
        self.state.set_comparison(Comparison("1.2.3", [used], ["SOME_VARIABLE"], [left]))
        self.state.set_ready(0.5)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    started = Runtime()
    yield started
    started.server.shutdown()
    started.server.server_close()


def kubelet_says(world: World, *, ready: bool, restarts: int) -> None:
    main = {
        "name": "main", "image": "x", "imageID": "x", "ready": ready, "restartCount": restarts,
        "state": {"running": {"startedAt": "2026-01-01T00:00:30Z"}},
    }  # fmt: skip
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Ready", "status": "True" if ready else "False"},
    ]
    ips = [{"ip": ADDRESS}]
    world.status_of(
        "pod", "vlm-0", phase="Running", podIP=ADDRESS, podIPs=ips, conditions=conditions, containerStatuses=[main]
    )


def events(world: World, reason: str) -> list[tuple[str, str]]:
    """Type and note of the Events of that reason."""
    found = json.loads(world("get", "events.events.k8s.io", "-o", "json"))["items"]
    return [(e["type"], e["note"]) for e in found if e["reason"] == reason]


def test_a_setting_that_the_engine_ignores_is_reported_with_both_values_until_it_is_in_force(
    world: World, runtime: Runtime
) -> None:
    world.apply(workload={"concurrency": 400, "images": {"width": 512, "height": 512}})
    world.wait_for("True", "HardwareFound", "HardwareResolved")
    runtime.starts(world.plan_hash())
    world.pod("vlm-0", node="hopper")
    kubelet_says(world, ready=False, restarts=0)
    startup = eventually(lambda: world.get("vlms")["status"]["startup"], seconds=SECONDS)
    assert (startup["pod"], startup["phase"], startup["budgetSeconds"]) == ("vlm-0", "CheckingHardware", 900)
    assert startup["phases"] == [{"phase": "Pulling", "seconds": 30}]
    assert world.condition("OverridesEffective")[:2] == ("Unknown", "NotAsked")

    runtime.serves(interval=0)
    kubelet_says(world, ready=True, restarts=0)
    world.serving()
    ready = time.monotonic()
    eventually(
        lambda: world.condition("OverridesEffective")[:2] == ("False", "EngineIgnoredSetting"),
        what=lambda: world.condition("OverridesEffective"),
        seconds=SECONDS,
    )
    assert time.monotonic() - ready < SECONDS
    told = "pod vlm-0: prefill_decode_interval is 0 instead of 22. "
    assert world.condition("OverridesEffective")[2].startswith(told)
    assert world.wait_for("False", "EngineIgnoredSetting").startswith(told)
    status = world.get("vlms")["status"]
    assert "startup" not in status
    assert status["effective"] == {
        "pod": "vlm-0",
        "agrees": False,
        "settings": [{"name": "prefill_decode_interval", "planned": 22, "effective": 0}],
        "notReported": ["SOME_VARIABLE"],
        "engineDefaults": [{"name": "attention_backend", "expected": "fa3", "effective": "flashinfer"}],
        "featurePoolMiB": 3072,
    }
    ((kind, note),) = eventually(lambda: events(world, "EngineIgnoredSetting"), seconds=SECONDS)
    assert (kind, note.startswith(told)) == ("Warning", True)

    runtime.starts(world.plan_hash())
    runtime.serves(interval=22)
    kubelet_says(world, ready=True, restarts=1)
    eventually(lambda: world.condition("OverridesEffective")[:2] == ("True", "InForce"), seconds=SECONDS)
    world.wait_for("True", "Serving")
    assert world.get("vlms")["status"]["effective"]["settings"] == []
    note = "1 pod uses every planned setting; not reported by the engine: SOME_VARIABLE"
    assert eventually(lambda: events(world, "InForce"), seconds=SECONDS) == [("Normal", note)]
    assert len(events(world, "EngineIgnoredSetting")) == 1
