"""The life of a container, with a stand-in for the engine: start, serve, drain, die."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.runtime.harness import STAND_IN, Container, make_plan

from minicluster.ports import free_port
from vlm_api.plan import ExpectedHardware, ServingPlan, Setting, Source
from vlm_api.reasons import FAILURES
from vlm_runtime.processes import children
from vlm_runtime.sglang import drain_file

Start = Callable[..., Container]
KEY = "sk-a-key-that-must-not-be-seen"


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent to look has no command line any more."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def workers_of(container: Container) -> list[int]:
    """The stand-in's worker processes."""
    listed = subprocess.run(["ps", "-eo", "pid=,sid=,args="], capture_output=True, text=True, check=True).stdout
    children = subprocess.run(
        ["ps", "-o", "sid=", "--ppid", str(container.process.pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    rows = (line.split(None, 2) for line in listed.splitlines())
    return [int(pid) for pid, session, args in rows if session in children and args.startswith("sglang::")]


def engine_of(container: Container) -> int:
    """The stand-in's main process."""
    (pid,) = children(container.process.pid)
    return pid


def on_gpus(**runtime: object) -> ServingPlan:
    return make_plan(
        hardware={"device": "cuda"}, runtime={"hardware": ExpectedHardware(device="cuda", devices=1), **runtime}
    )


def a_driver_that_does_not_answer(folder: Path) -> dict[str, str]:
    """A pynvml whose calls wait in C, where no signal reaches Python; the environment that finds it."""
    (folder / "pynvml.py").write_text(
        "import ctypes\nclass NVMLError(Exception): pass\ndef nvmlInit(): ctypes.CDLL(None).pause()\n"
    )
    return {"PYTHONPATH": str(folder)}


class Stream(threading.Thread):
    """A client that reads one long answer."""

    def __init__(self, container: Container, tokens: int) -> None:
        super().__init__(daemon=True)
        self.port, self.tokens, self.body = container.engine_port, tokens, b""
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.suppress(OSError, http.client.HTTPException):  # the engine was ended under it
            connection.request("POST", "/v1/chat/completions", json.dumps({"stream": True, "max_tokens": self.tokens}))
            self.body = connection.getresponse().read()


class TestStart:
    def test_probes_say_what_is_going_on_before_anything_listens_on_the_engines_port(self, container: Start) -> None:
        run = container(load_seconds=3)
        run.wait_for(lambda: "LoadingWeights" in run.get("/startupz")[1], "loading weights")
        assert run.get("/startupz")[0] == 503
        assert run.get("/readyz")[0] == 503
        assert run.get("/livez")[0] == 200
        assert "of 60 s" in run.get("/readyz")[1]

    def test_it_is_ready_only_after_an_image_of_the_planned_size_was_answered(self, container: Start) -> None:
        plan = make_plan(runtime={"probe_image_width": 512, "probe_image_height": 384})
        run = container(plan)
        run.wait_ready()
        assert "question to qwen3-vl about an image of 512 x 384" in run.log()
        report = run.report()
        assert report["phase"] == "Ready"
        assert report["ready"] is True
        assert report["firstImageSeconds"] > 0
        assert run.get("/startupz")[0] == 200

    def test_an_engine_that_refuses_images_is_a_failure_that_says_so(self, container: Start) -> None:
        run = container(env={"VLMSERVE_API_KEY": KEY}, refuse_images=True)
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "ConfigurationError"
        assert "64 x 64 pixels with 400" in run.failure()["message"]
        assert KEY not in run.failure()["message"]

    def test_an_engine_whose_model_takes_text_alone_says_so(self, container: Start) -> None:
        run = container(refuse_images="Model only supports text input; received unsupported content type 'image_url'.")
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "ImageNotSeen"
        assert "64 x 64 pixels with 400" in run.failure()["message"]

    @pytest.mark.parametrize("told", [{"understands_images": False}, {}], ids=["says so", "does not say"])
    def test_an_engine_that_drops_images_is_a_failure_and_never_ready(
        self, container: Start, told: dict[str, bool]
    ) -> None:
        run = container(drop_images=True, **told)
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "ImageNotSeen"
        assert "with the image its prompt has 15 tokens, without it 14" in run.failure()["message"]
        assert run.failure()["message"].endswith(FAILURES["ImageNotSeen"])
        assert "ready after" not in run.log()

    @pytest.mark.parametrize(
        "told",
        [{"drop_images": True, "understands_images": True}, {"usage": False}, {"plain_status": 400}],
        ids=["few tokens, but it understands images", "it counts no tokens", "it wants an image in every question"],
    )
    def test_an_engine_of_which_nothing_tells_that_it_drops_images_serves(
        self, container: Start, told: dict[str, object]
    ) -> None:
        container(**told).wait_ready()

    def test_an_engine_that_lives_on_without_its_port_is_ended_at_once(self, container: Start) -> None:
        port = free_port()
        with socket.create_server(("127.0.0.1", port)):
            run = container(options=["--engine-port", str(port)])
            assert run.wait_exit(15) == 1
        assert run.failure()["reason"] == "PortInUse"
        assert f"{port}): address already in use" in run.failure()["message"]

    def test_a_port_of_the_runtime_that_is_taken_is_said(self, container: Start) -> None:
        port = free_port()
        with socket.create_server(("", port)):
            run = container(options=["--port", str(port)])
            assert run.wait_exit(15) == 1
        assert run.failure()["reason"] == "PortInUse"
        assert f"cannot listen on port {port}" in run.failure()["message"]

    def test_a_start_beyond_its_budget_ends_with_the_phase_it_was_in(self, container: Start) -> None:
        run = container(make_plan(runtime={"startup_budget_seconds": 2}), load_seconds=60)
        assert run.wait_exit(15) == 1
        assert run.failure()["reason"] == "StartupTimeout"
        assert "LoadingWeights" in run.failure()["message"]

    def test_a_driver_that_does_not_answer_ends_the_start_with_its_budget(
        self, container: Start, tmp_path: Path
    ) -> None:
        run = container(on_gpus(startup_budget_seconds=2), env=a_driver_that_does_not_answer(tmp_path))
        assert run.wait_exit(15) == 1
        assert run.failure()["reason"] == "StartupTimeout"
        assert "the driver does not answer" in run.failure()["message"]

    def test_engines_without_a_ready_endpoint_are_asked_for_their_health(self, container: Start) -> None:
        run = container(make_plan(engine={"version": "0.5.19"}), ready_path=False)
        run.wait_ready()

    def test_engines_of_unknown_version_are_asked_for_their_health_once_they_do_not_know_ready(
        self, container: Start
    ) -> None:
        run = container(make_plan(engine={"version": None}), ready_path=False)
        run.wait_ready()

    def test_what_the_engine_uses_is_compared_with_the_plan(self, container: Start) -> None:
        def planned(name: str, value: object) -> Setting:
            return Setting(name=name, value=value, applied=True, source=Source.PROFILE, rule="r", reason="r")

        plan = make_plan(
            engine={"args": ["--max-running-requests", "400"], "env": {"SGLANG_VLM_CACHE_SIZE_MB": "0"}},
            settings=[
                planned("max_running_requests", 400),
                planned("SGLANG_VLM_CACHE_SIZE_MB", 0),
                planned("radix_eviction_policy", "priority"),
            ],
        )
        run = container(plan)
        run.wait_ready()
        run.wait_for(lambda: bool(run.report()["settings"]), "compared")
        found = {s["name"]: (s["effective"], s["agrees"]) for s in run.report()["settings"]}
        assert found == {
            "max_running_requests": (400, True),
            "SGLANG_VLM_CACHE_SIZE_MB": ("0", True),
            "radix_eviction_policy": ("lru", False),
        }
        assert run.report()["engineVersion"] == "0.5.23"
        assert "vlm_runtime_setting_mismatches 1.0" in run.get("/metrics")[1]

    def test_the_cpu_plugin_is_switched_on_by_the_plan_alone(self, container: Start) -> None:
        on_cpu = container(make_plan(hardware={"device": "cpu"}))
        on_cpu.wait_ready()
        assert "device=cpu" in on_cpu.log()
        on_gpu = container(make_plan(hardware={"device": "cuda"}), env={"VLMSERVE_DEVICE": "cpu"})
        on_gpu.wait_ready()
        assert "device=None" in on_gpu.log()


class TestSecrets:
    def test_the_api_key_reaches_the_engine_and_nothing_else(self, container: Start) -> None:
        run = container(env={"VLMSERVE_API_KEY": KEY, "HF_TOKEN": "hf-secret-of-the-user"})
        run.wait_ready()
        assert "'api_key': [redacted]" in run.log()
        everything = run.log() + "".join(run.get(path)[1] for path in ("/report", "/metrics", "/readyz", "/livez"))
        assert KEY not in everything
        assert "hf-secret-of-the-user" not in everything

    def test_the_engine_answers_401_without_the_key(self, container: Start) -> None:
        run = container(env={"VLMSERVE_API_KEY": KEY})
        run.wait_ready()
        assert run.get("/server_info", run.engine_port)[0] == 401


class TestStop:
    @pytest.mark.parametrize(
        ("phase", "slow"),
        [
            ("Starting", "start_seconds"),
            ("LoadingWeights", "load_seconds"),
            ("WarmingUp", "warmup_seconds"),
            ("FirstImage", "image_seconds"),
        ],
    )
    def test_sigterm_before_the_pod_is_ready_ends_at_once_and_is_no_failure(
        self, container: Start, phase: str, slow: str
    ) -> None:
        run = container(**{slow: 60})
        run.wait_for(lambda: phase in run.get("/startupz")[1], phase)
        began = time.monotonic()
        run.terminate()
        assert run.wait_exit() == 0
        assert time.monotonic() - began < 5
        assert not run.termination_log.exists()

    def test_sigterm_while_a_lost_driver_does_not_answer_ends_at_once(self, container: Start, tmp_path: Path) -> None:
        run = container(on_gpus(), env=a_driver_that_does_not_answer(tmp_path))
        run.wait_for(lambda: "CheckingHardware" in run.get("/startupz")[1], "checking the hardware")
        began = time.monotonic()
        run.terminate()
        assert run.wait_exit() == 0
        assert time.monotonic() - began < 5
        assert "before there was an engine" in run.log()

    def test_running_streams_are_finished_and_new_ones_are_taken_until_the_endpoints_have_moved(
        self, container: Start
    ) -> None:
        run = container()
        run.wait_ready()
        long = Stream(run, tokens=40)
        time.sleep(0.5)
        run.terminate()
        run.wait_for(lambda: run.get("/readyz")[0] == 503, "unready", seconds=1)
        late = Stream(run, tokens=5)
        assert run.report()["phase"] == "Draining"
        assert Path(drain_file(run.engine_port)).exists()  # the guard then ends each connection with its answer
        assert run.get("/livez")[0] == 200
        assert run.wait_exit() == 0
        for stream in (long, late):
            stream.join(5)
            assert stream.body.endswith(b"[DONE]\n\n")
        assert not run.termination_log.exists()

    def test_requests_that_run_longer_than_the_plan_allows_are_cut(self, container: Start) -> None:
        run = container(make_plan(runtime={"drain_seconds": 1}))
        run.wait_ready()
        Stream(run, tokens=600)
        time.sleep(0.5)
        began = time.monotonic()
        run.terminate()
        assert run.wait_exit() == 0
        assert 2 <= time.monotonic() - began < 6
        assert "requests still ran after 1 s" in run.log()

    def test_a_second_sigterm_ends_at_once(self, container: Start) -> None:
        run = container()
        run.wait_ready()
        Stream(run, tokens=600)
        run.terminate()
        run.wait_for(lambda: run.report()["phase"] == "Draining", "draining")
        run.terminate()
        assert run.wait_exit(5) == 0


class TestDeath:
    def test_a_killed_scheduler_ends_the_container_with_that_reason(self, container: Start) -> None:
        run = container()
        run.wait_ready()
        (worker,) = workers_of(run)
        os.kill(worker, signal.SIGKILL)
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "SchedulerDied"
        assert "exit code -9" in run.failure()["message"]

    def test_an_engine_that_ends_by_itself_with_code_0_is_a_failure(self, container: Start) -> None:
        run = container(exit_code=0)
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "EngineExited"

    def test_a_flag_that_the_engine_does_not_know_is_named(self, container: Start) -> None:
        run = container(make_plan(engine={"args": ["--no-such-flag"]}))
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "BadArgument"
        assert "unrecognized arguments: --no-such-flag" in run.failure()["message"]
        assert run.failure()["message"].endswith(FAILURES["BadArgument"])

    def test_a_signal_from_outside_is_named(self, container: Start) -> None:
        run = container(exit_code=-signal.SIGSEGV)
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "EngineKilled"
        assert "SIGSEGV" in run.failure()["message"]

    def test_nothing_of_the_engine_outlives_the_container(self, container: Start, tmp_path: Path) -> None:
        orphan = tmp_path / "orphan"
        run = container(env={"ORPHAN": str(orphan)}, leave_orphan=3600)
        run.wait_ready()
        pids = [*workers_of(run), int(orphan.read_text())]
        run.terminate()
        assert run.wait_exit() == 0
        assert [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()] == []

    def test_orphans_are_collected_while_the_engine_runs(self, container: Start, tmp_path: Path) -> None:
        orphan = tmp_path / "orphan"
        run = container(env={"ORPHAN": str(orphan)}, leave_orphan=1)
        run.wait_ready()
        run.wait_for(lambda: not Path(f"/proc/{int(orphan.read_text())}").exists(), "collected", seconds=5)
        assert run.get("/readyz")[0] == 200

    def test_an_engine_is_found_by_its_name_as_a_shell_finds_it(self, container: Start) -> None:
        folder = Path(sys.executable).parent
        run = container(
            engine_command=[Path(sys.executable).name, str(STAND_IN)], env={"PATH": f"{folder}:{os.environ['PATH']}"}
        )
        run.wait_ready()

    def test_an_engine_that_cannot_be_started_is_explained(self, container: Start, tmp_path: Path) -> None:
        run = container(engine_command=[str(tmp_path / "nothing-here")])
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "EngineExited"
        assert "nothing-here" in run.failure()["message"]


class TestHang:
    def test_a_scheduler_that_hangs_ends_the_container_with_that_reason(self, container: Start) -> None:
        run = container(options=["--hang-seconds", "2"])
        run.wait_ready()
        os.kill(workers_of(run)[0], signal.SIGSTOP)
        assert run.wait_exit(60) == 1
        assert run.failure()["reason"] == "EngineHung"
        assert "sglang::scheduler is held by a signal" in run.failure()["message"]
        assert run.failure()["message"].endswith(FAILURES["EngineHung"])

    def test_a_draining_engine_is_given_its_time(self, container: Start) -> None:
        run = container(make_plan(runtime={"drain_seconds": 2}), options=["--hang-seconds", "1"])
        run.wait_ready()
        Stream(run, tokens=600)
        time.sleep(0.5)
        run.terminate()
        run.wait_for(lambda: run.report()["phase"] == "Draining", "draining")
        os.kill(workers_of(run)[0], signal.SIGSTOP)
        assert run.wait_exit() == 0
        assert "requests still ran after 2 s" in run.log()


class TestTheRuntimeItself:
    def test_an_engine_whose_runtime_is_killed_ends_with_it(self, container: Start) -> None:
        run = container()
        run.wait_ready()
        engine = [engine_of(run), *workers_of(run)]
        assert len(engine) == 2
        run.process.kill()
        run.process.wait(5)
        deadline = time.monotonic() + 10
        while any(map(lives, engine)):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def test_a_log_that_nobody_reads_any_more_stops_nothing(self, container: Start) -> None:
        run = container(within=["sh", "-c", 'exec "$@" >&- 2>&-', "sh"])
        run.wait_ready()
        run.terminate()
        assert run.wait_exit() == 0

    def test_a_burst_of_signals_about_children_changes_nothing(self, container: Start) -> None:
        run = container()
        run.wait_ready()
        for _ in range(500):
            run.process.send_signal(signal.SIGCHLD)
        assert run.get("/readyz")[0] == 200
        run.terminate()
        assert run.wait_exit() == 0


class TestBeforeTheEngine:
    def test_a_plan_that_cannot_be_read_is_explained(self, container: Start) -> None:
        run = container(options=["--plan", "/nowhere/plan.json"])
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "BadPlan"
        assert "/nowhere/plan.json" in run.failure()["message"]

    @pytest.mark.parametrize("engine", [{"args": ["--served-model-name", "a\0b"]}, {"env": {"A=B": "c"}}])
    def test_words_that_no_process_can_be_given_are_explained(
        self, container: Start, engine: dict[str, object]
    ) -> None:
        run = container(make_plan(engine=engine))
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "BadPlan"
        assert "Traceback" not in run.log()

    def test_a_key_that_no_client_can_send_is_explained(self, container: Start) -> None:
        run = container(env={"VLMSERVE_API_KEY": "two words"})
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "BadApiKey"

    def test_a_budget_beyond_what_clocks_can_tell_is_no_hindrance(self, container: Start) -> None:
        container(make_plan(runtime={"startup_budget_seconds": 10**30})).wait_ready()

    def test_a_group_without_its_variables_is_explained(self, container: Start) -> None:
        run = container(make_plan(runtime={"nodes": 2}))
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "BadPlan"
        assert "LWS_LEADER_ADDRESS" in run.failure()["message"] or "LWS_GROUP_SIZE" in run.failure()["message"]

    def test_a_follower_is_ready_with_the_engines_health_and_asks_no_question(self, container: Start) -> None:
        group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "head.group"}
        run = container(make_plan(runtime={"nodes": 2}), env=group, ready_path=False)
        run.wait_ready()
        assert "'dist_init_addr': 'head.group:20000'" in run.log()
        assert "question" not in run.log()
        assert run.report()["firstImageSeconds"] is None

    def test_a_missing_driver_is_a_note_and_the_engine_starts(self, container: Start) -> None:
        run = container(on_gpus())
        run.wait_ready()
        assert "NVIDIA driver" in run.report()["hardware"]["note"]
