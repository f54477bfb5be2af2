"""Probes, report and metrics of one pod, through its life."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading

from prometheus_client.parser import text_string_to_metric_families

from vlm_api.report import EffectiveSetting, Fallback, FeaturePool, Phase, Report
from vlm_runtime.report.metrics import exposition, registry
from vlm_runtime.report.server import MOST_CONNECTIONS, pages, serve
from vlm_runtime.report.state import STUCK_SECONDS, RuntimeState
from vlm_runtime.sglang.effective import Comparison
from vlm_runtime.sglang.failure import failure

DIFFERENT = Comparison(
    "0.5.23", [EffectiveSetting(name="x", planned=1, effective=2, agrees=False)], ["TORCHDYNAMO_DISABLE"], []
)


class Clock:
    """Time that tests move."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def pod() -> tuple[RuntimeState, Clock]:
    clock = Clock()
    return RuntimeState("abc", 600, clock), clock


def probes(state: RuntimeState) -> tuple[bool, bool, bool]:
    """(startup, readiness, liveness)"""
    return state.startup_probe().ok, state.readiness_probe().ok, state.liveness_probe().ok


def test_a_starting_pod_is_alive_and_reports_its_progress() -> None:
    state, clock = pod()
    state.advance(Phase.LOADING_WEIGHTS)
    clock.now += 35
    assert probes(state) == (False, False, True)
    assert state.startup_probe().reason == "LoadingWeights: 35 of 600 s"
    assert state.remaining_seconds == 565


def test_a_ready_pod_answers_all_probes() -> None:
    state, _ = pod()
    state.set_ready(0.5)
    assert probes(state) == (True, True, True)


def test_an_engine_that_does_not_answer_is_unready_but_alive() -> None:
    state, _ = pod()
    state.set_ready(0.5)
    assert state.set_unready_reason("the engine answers 503") is True
    assert probes(state) == (True, False, True)
    assert state.readiness_probe().reason == "the engine answers 503"
    assert state.set_unready_reason(None) is True
    assert probes(state) == (True, True, True)


def test_a_draining_pod_is_unready_but_alive() -> None:
    state, _ = pod()
    state.set_ready(0.5)
    state.set_stopping(Phase.DRAINING)
    assert probes(state) == (True, False, True)
    state.set_unready_reason(None)
    assert probes(state) == (True, False, True)


def test_a_failed_engine_fails_liveness_with_its_reason() -> None:
    state, _ = pod()
    state.set_ready(0.5)
    state.set_failed(failure("SchedulerDied", "sglang::scheduler died."))
    assert probes(state) == (True, False, False)
    assert state.liveness_probe().reason.startswith("SchedulerDied: sglang::scheduler died.")


def test_a_stopping_pod_does_not_become_ready() -> None:
    state, _ = pod()
    state.set_stopping(Phase.STOPPED)
    state.set_ready(0.5)
    assert state.phase is Phase.STOPPED
    assert not state.readiness_probe().ok


def test_the_report_is_what_the_operator_reads() -> None:
    state, clock = pod()
    clock.now += 42.04
    state.set_ready(0.25)
    state.set_comparison(DIFFERENT)
    _, kind, body = pages(state, registry(state, None))["/report"]()
    report = Report.model_validate_json(body)
    assert kind == "application/json"
    assert (report.plan_hash, report.phase, report.ready, report.elapsed_seconds) == ("abc", Phase.READY, True, 42.0)
    assert (report.engine_version, report.first_image_seconds) == ("0.5.23", 0.25)
    assert (report.settings_read, report.not_reported) == (True, ["TORCHDYNAMO_DISABLE"])
    assert [s.name for s in report.settings] == ["x"]


def test_a_report_has_the_start_of_each_phase() -> None:
    state, clock = pod()
    for seconds, phase in ((1.0, Phase.STARTING), (9.5, Phase.LOADING_WEIGHTS), (30.0, Phase.STARTING)):
        clock.now += seconds
        state.advance(phase)
    clock.now += 10
    state.set_ready(0.5)
    state.set_stopping(Phase.DRAINING)
    report = state.report()
    assert not report.settings_read
    assert [(began.phase.value, began.after_seconds) for began in report.phases] == [
        ("CheckingHardware", 0.0),
        ("Starting", 1.0),
        ("LoadingWeights", 10.5),
        ("Ready", 50.5),
    ]
    found = metrics(state)
    assert found["vlm_runtime_startup_phase_duration_seconds", "LoadingWeights"] == 40
    assert ("vlm_runtime_startup_phase_duration_seconds", "Ready") not in found


def test_metrics_have_the_pools_planned_and_true_size() -> None:
    state, _ = pod()
    assert ("vlm_runtime_feature_pool_size_bytes", "") not in metrics(state)
    state.set_feature_pool(FeaturePool(planned_bytes=3072 << 20, size_bytes=1024 << 20, logged=[Fallback.POOL_FULL]))
    found = metrics(state)
    assert found["vlm_runtime_feature_pool_planned_bytes", ""] == 3072 << 20
    assert found["vlm_runtime_feature_pool_size_bytes", ""] == 1024 << 20


def test_a_probe_is_answered_despite_many_open_connections() -> None:
    state, _ = pod()
    port = serve(state, 0)
    with contextlib.ExitStack() as held:
        for _ in range(3 * MOST_CONNECTIONS):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        probe = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        probe.request("GET", "/livez")
        assert probe.getresponse().status == 200
        handlers = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(handlers) < 2 * MOST_CONNECTIONS


def test_a_stuck_main_loop_fails_liveness() -> None:
    state, clock = pod()
    state.set_ready(0.5)
    clock.now += STUCK_SECONDS - 1
    assert state.liveness_probe().ok
    clock.now += 2
    assert not state.liveness_probe().ok
    assert "has not run for 121 s" in state.liveness_probe().reason
    state.heartbeat()
    assert state.liveness_probe().ok


def metrics(state: RuntimeState) -> dict[tuple[str, str], float]:
    """(name, label value) -> value"""
    text = exposition(registry(state, None)).decode()
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_have_the_phase_and_its_duration() -> None:
    state, clock = pod()
    clock.now += 42
    assert ("vlm_runtime_startup_duration_seconds", "") not in metrics(state)
    state.set_ready(0.25)
    state.set_comparison(DIFFERENT)
    found = metrics(state)
    assert found["vlm_runtime_startup_duration_seconds", ""] == 42
    assert found["vlm_runtime_first_image_duration_seconds", ""] == 0.25
    assert found["vlm_runtime_phase", "Ready"] == 1
    assert sum(value for (name, _), value in found.items() if name == "vlm_runtime_phase") == 1
    assert found["vlm_runtime_ready", ""] == 1
    assert found["vlm_runtime_setting_effective", "x"] == 0
    assert found["vlm_runtime_setting_mismatches", ""] == 1
    assert found["vlm_runtime_settings_not_reported", ""] == 1


def test_every_metric_has_the_prefix_a_base_unit_and_a_description() -> None:
    state, _ = pod()
    for family in text_string_to_metric_families(exposition(registry(state, None)).decode()):
        assert re.fullmatch(r"vlm_runtime_[a-z_]+", family.name)
        assert not re.search(r"_(ms|milliseconds|mib|minutes)$", family.name)
        assert family.documentation
        assert all(not (sample.name.endswith("_total") and family.type != "counter") for sample in family.samples)
