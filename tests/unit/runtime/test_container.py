"""The life of a container, with a stand-in for the engine: start, serve, drain, die."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.streams import Client, Load
from unit.runtime.harness import STAND_IN, Container, make_plan

from minicluster.ports import free_port
from vlm_api.plan import ExpectedHardware, ServingPlan, Setting, Source
from vlm_api.reasons import FAILURES
from vlm_runtime.sglang.inside import drain_file
from vlm_runtime.sglang.processes import children, worker_processes

Start = Callable[..., Container]

KEY, TOKEN, PASSWORD, IN_URL = "sk-secret-client-key", "secret-hub-token", "password-of-a-store", "password-in-a-url"
SECRETS = (KEY, TOKEN, PASSWORD, IN_URL)
# The stand-in's /server_info contains its key and all variables of SGLang, as the engine's may.
SECRET_ENV = {
    "VLMSERVE_API_KEY": KEY,
    "HF_TOKEN": TOKEN,
    "STORE_PASSWORD": PASSWORD,
    "SGLANG_TEST_STORE": f"user {PASSWORD} host",
    "SGLANG_TEST_URL": f"https://user:{IN_URL}@store.example.com",
    "SGLANG_TEST_TOKEN": TOKEN,
}
PORT_TAKEN = "error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
POOL_FULL = "MmItemMemoryPool has no free chunk large enough for a 1 MiB tensor (pool size: {} MiB)"
UNFINISHED = f"{'6d' * 32}.e3aaa511.incomplete"


def runs(pid: int) -> bool:
    """False also for a zombie, which has no command line any more."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def engine_of(container: Container) -> int:
    (pid,) = children(container.process.pid)
    return pid


def workers_of(container: Container) -> list[int]:
    return [worker.pid for worker in worker_processes(container.process.pid)]


def gpu_plan(**runtime: object) -> ServingPlan:
    return make_plan(
        engine={"version": None, "args": ["--host", "127.0.0.2"]},
        hardware={"device": "cuda"},
        runtime={"hardware": ExpectedHardware(device="cuda", devices=1), **runtime},
    )


def hanging_driver(folder: Path) -> dict[str, str]:
    """An environment with a pynvml whose calls wait in C, where no signal reaches Python."""
    (folder / "pynvml.py").write_text(
        "import ctypes\nclass NVMLError(Exception): pass\ndef nvmlInit(): ctypes.CDLL(None).pause()\n"
    )
    return {"PYTHONPATH": str(folder)}


def request(container: Container, model: str = "vlm", **body: object) -> bytes:
    """A chat completion with an image; ``model`` and the like appear in the engine's log."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 32}}
    sent = urllib.request.Request(
        f"http://127.0.0.1:{container.engine_port}/v1/chat/completions",
        json.dumps({"model": model, "messages": [{"role": "user", "content": [image]}], **body}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
    )
    with urllib.request.urlopen(sent, timeout=30) as answer:
        return bytes(answer.read())


class Stream(threading.Thread):
    """A client that reads an answer of a tenth of a second per token; it has begun when this returns."""

    def __init__(self, container: Container, tokens: int) -> None:
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", container.engine_port, timeout=30)
        self.connection.request("POST", "/v1/chat/completions", json.dumps({"stream": True, "max_tokens": tokens}))
        self.answer = self.connection.getresponse()
        self.body = b""
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # the engine was killed
            self.body = self.answer.read()

    def is_complete(self) -> bool:
        self.join(30)
        return self.body.endswith(b"[DONE]\n\n")


def setting(name: str, value: object = "planned", *, applied: bool = True) -> Setting:
    planned = value if applied else None
    return Setting(name=name, value=planned, applied=applied, expected="x", source=Source.USER, rule="r", reason="r")


@pytest.fixture(scope="module")
def serving(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """One container for all that only looks at a serving pod. The engine is found by its name, as a shell finds it."""
    folder = tmp_path_factory.mktemp("serving")
    blobs = folder / "hub/models--org--model/blobs"
    blobs.mkdir(parents=True)
    (blobs / UNFINISHED).write_bytes(bytes(3 << 20))
    os.utime(blobs / UNFINISHED, (1, 1))
    secret = [setting(name) for name in ("api_key", "SGLANG_TEST_TOKEN", "SGLANG_TEST_STORE")]
    run = start(
        make_plan(
            engine={"args": ["--max-running-requests", "400"], "env": {"SGLANG_VLM_CACHE_SIZE_MB": "0"}},
            runtime={"probe_image_width": 512, "probe_image_height": 384},
            settings=[
                setting("max_running_requests", 400),
                setting("SGLANG_VLM_CACHE_SIZE_MB", 0),
                setting("radix_eviction_policy", "priority"),
                *secret,
                setting("SGLANG_TEST_URL", applied=False),
            ],
        ),
        engine_command=[Path(sys.executable).name, str(STAND_IN)],
        env={
            **SECRET_ENV,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HF_HUB_CACHE": str(folder / "hub"),
            "ORPHAN": str(folder / "orphan"),
        },
        leave_orphan=0.1,
        ignore_dead_worker=True,
    )
    run.folder = folder  # type: ignore[attr-defined]
    run.wait_ready()
    yield run
    run.end()


class TestServing:
    """In this order: the last test ends the container."""

    def test_it_is_ready_after_an_answer_about_an_image_of_the_planned_size(self, serving: Container) -> None:
        assert "question to qwen3-vl about an image of 512 x 384" in serving.log()
        assert "device=cpu" in serving.log()
        report = serving.report()
        assert (report["phase"], report["ready"], report["engineVersion"]) == ("Ready", True, "0.5.23")
        assert report["firstImageSeconds"] > 0
        assert [serving.get(path)[0] for path in ("/startupz", "/livez")] == [200, 200]

    def test_the_engines_settings_are_compared_with_the_plan(self, serving: Container) -> None:
        report = serving.report()
        assert {s["name"]: (s["effective"], s["agrees"]) for s in report["settings"]} == {
            "max_running_requests": (400, True),
            "SGLANG_VLM_CACHE_SIZE_MB": ("0", True),
            "radix_eviction_policy": ("lru", False),
            "SGLANG_TEST_STORE": ("user [redacted] host", False),
        }
        assert [s["effective"] for s in report["engineDefaults"]] == ["https://user:[redacted]@store.example.com"]
        assert report["notReported"] == ["api_key", "SGLANG_TEST_TOKEN"]
        assert "vlm_runtime_setting_mismatches 2.0" in serving.get("/metrics")[1]

    def test_the_key_reaches_the_engine_and_no_secret_is_shown(self, serving: Container) -> None:
        assert serving.get("/server_info", serving.engine_port)[0] == 401
        assert "'api_key': [redacted]" in serving.log()
        assert "SGLANG_TEST_STORE was planned as 'planned', the engine uses 'user [redacted] host'" in serving.log()
        shown = {path: serving.get(path)[1] for path in ("/report", "/metrics", "/readyz", "/livez", "/startupz")}
        for place, text in (shown | {"log": serving.log()}).items():
            assert [secret for secret in SECRETS if secret in text] == [], place

    def test_leftovers_are_removed_and_orphans_reaped(self, serving: Container) -> None:
        folder = serving.folder  # type: ignore[attr-defined]
        serving.wait_for(lambda: "removed 1 files of 3 MiB of unfinished downloads" in serving.log(), "removed")
        assert not (folder / "hub/models--org--model/blobs" / UNFINISHED).exists()
        orphan = int((folder / "orphan").read_text())
        serving.wait_for(lambda: not Path(f"/proc/{orphan}").exists(), "reaped")

    def test_a_burst_of_signals_about_children_changes_nothing(self, serving: Container) -> None:
        for _ in range(500):
            serving.process.send_signal(signal.SIGCHLD)
        assert serving.get("/readyz")[0] == 200

    def test_text_of_clients_in_the_log_neither_ends_the_engine_nor_explains_its_end(self, serving: Container) -> None:
        texts = [
            PORT_TAKEN,
            f"x\n[2026-11-30 06:00:00] ERROR:    [Errno 98] {PORT_TAKEN}\n",
            f"CUDA IPC multimodal feature pools reserve {'9' * 5000} MiB total on GPU 0",
            POOL_FULL.format("1.2.3"),
            POOL_FULL.format("9" * 400),
            "the last text",
        ]
        for text in texts:
            request(serving, text)
        serving.wait_for(lambda: "the last text" in serving.log(), "forwarded")
        assert "internal error" not in serving.log()
        assert serving.get("/readyz")[0] == 200
        os.kill(engine_of(serving), signal.SIGKILL)
        assert serving.wait_exit() == 1
        assert serving.failure()["reason"] == "EngineKilled"


class TestStart:
    def test_an_engine_that_lives_on_without_its_port_is_ended(self, container: Start) -> None:
        port = free_port()
        with socket.create_server(("127.0.0.1", port)):
            run = container(options=["--engine-port", str(port)])
            assert run.wait_exit() == 1
        assert run.failure()["reason"] == "PortInUse"
        assert f"{port}): address already in use" in run.failure()["message"]

    def test_a_start_beyond_its_budget_ends_with_its_phase(self, container: Start) -> None:
        run = container(make_plan(runtime={"startup_budget_seconds": 1}), load_seconds=60)
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "StartupTimeout"

    def test_a_driver_that_does_not_answer_uses_up_the_budget(self, container: Start, tmp_path: Path) -> None:
        run = container(gpu_plan(startup_budget_seconds=1), env=hanging_driver(tmp_path))
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "StartupTimeout"
        assert "the driver does not answer" in run.failure()["message"]

    def test_a_gpu_plan_without_a_driver_on_another_address_becomes_ready(self, container: Start) -> None:
        """Also with a budget beyond what clocks can tell, and an unknown release that has no /ready."""
        run = container(gpu_plan(startup_budget_seconds=10**30), env={"VLMSERVE_DEVICE": "cpu"}, ready_path=False)
        run.wait_ready()
        assert "NVIDIA driver" in run.report()["hardware"]["note"]
        assert "device=None" in run.log()

    def test_arguments_that_no_process_can_take_are_explained(self, container: Start) -> None:
        run = container(make_plan(engine={"args": ["--served-model-name", "a\0b"]}))
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "BadPlan"
        assert "Traceback" not in run.log()

    def test_a_program_that_does_not_exist_is_explained(self, container: Start, tmp_path: Path) -> None:
        run = container(engine_command=[str(tmp_path / "nothing-here")])
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "EngineExited"
        assert "nothing-here" in run.failure()["message"]


class TestStop:
    def test_sigterm_while_loading_ends_at_once(self, container: Start) -> None:
        run = container(load_seconds=600)
        run.wait_for(lambda: "LoadingWeights" in run.get("/startupz")[1], "loading weights")
        assert [run.get(path)[0] for path in ("/startupz", "/readyz", "/livez")] == [503, 503, 200]
        assert "of 60 s" in run.get("/readyz")[1]
        run.terminate()
        assert run.wait_exit() == 0
        assert not run.termination_log.exists()

    def test_sigterm_during_the_first_image_does_not_wait_for_it(self, container: Start) -> None:
        run = container(image_seconds=600)
        run.wait_for(lambda: "FirstImage" in run.get("/startupz")[1], "the first image")
        run.terminate()
        assert run.wait_exit() == 0

    def test_sigterm_while_the_driver_does_not_answer_ends_at_once(self, container: Start, tmp_path: Path) -> None:
        run = container(gpu_plan(), env=hanging_driver(tmp_path))
        run.wait_for(lambda: "CheckingHardware" in run.get("/startupz")[1], "checking the hardware")
        run.terminate()
        assert run.wait_exit() == 0
        assert "before there was an engine" in run.log()

    def test_running_streams_finish_and_new_ones_start_until_the_endpoints_have_moved(self, container: Start) -> None:
        run = container(endpoint_delay=2.0)
        run.wait_ready()
        client = Client(Load(f"http://127.0.0.1:{run.engine_port}", "vlm", tokens=2, image_side=8), keep_alive=True)
        assert [client.ask().outcome for _ in range(2)] == ["ok", "ok"]
        assert client.connections == 1
        long = Stream(run, tokens=25)
        run.terminate()
        run.wait_for(lambda: run.get("/readyz")[0] == 503, "unready")
        late = Stream(run, tokens=5)
        assert run.report()["phase"] == "Draining"
        assert Path(drain_file(run.engine_port)).exists()  # the guard then closes each connection with its answer
        assert run.get("/livez")[0] == 200
        assert client.ask().outcome == "ok"
        assert client._connection.sock is None  # the next request goes to another pod
        assert run.wait_exit() == 0
        assert long.is_complete()
        assert late.is_complete()
        assert not run.termination_log.exists()

    def test_an_unhealthy_engine_finishes_its_answers(self, container: Start) -> None:
        run = container()
        run.wait_ready()
        stream = Stream(run, tokens=15)
        run.get("/become_unhealthy", run.engine_port)
        run.terminate()
        assert run.wait_exit() == 0
        assert stream.is_complete()

    def test_a_draining_engine_may_hang_until_its_time_is_over(self, container: Start) -> None:
        run = container(make_plan(runtime={"drain_seconds": 2}), options=["--hang-seconds", "1"])
        run.wait_ready()
        stream = Stream(run, tokens=600)
        (worker,) = workers_of(run)
        run.terminate()
        run.wait_for(lambda: run.report()["phase"] == "Draining", "draining")
        os.kill(worker, signal.SIGSTOP)
        assert run.wait_exit() == 0
        assert "requests still run after 2 s" in run.log()
        assert not stream.is_complete()

    def test_a_second_sigterm_ends_at_once_and_leaves_no_process(self, container: Start, tmp_path: Path) -> None:
        orphan = tmp_path / "orphan"
        run = container(env={"ORPHAN": str(orphan)}, leave_orphan=3600)
        run.wait_ready()
        pids = {*children(run.process.pid), *workers_of(run), int(orphan.read_text())}
        assert len(pids) == 3
        Stream(run, tokens=600)
        run.terminate()
        run.wait_for(lambda: run.report()["phase"] == "Draining", "draining")
        run.terminate()
        assert run.wait_exit() == 0
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


class TestFailure:
    def test_a_killed_scheduler(self, container: Start) -> None:
        run = container()
        run.wait_ready()
        (worker,) = workers_of(run)
        os.kill(worker, signal.SIGKILL)
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "SchedulerDied"
        assert "exit code -9" in run.failure()["message"]

    def test_a_hanging_scheduler(self, container: Start) -> None:
        run = container(options=["--hang-seconds", "1"])
        run.wait_ready()
        os.kill(workers_of(run)[0], signal.SIGSTOP)
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "EngineHung"
        assert "sglang::scheduler is stopped by a signal" in run.failure()["message"]
        assert run.failure()["message"].endswith(FAILURES["EngineHung"])

    def test_an_unknown_flag(self, container: Start) -> None:
        run = container(make_plan(engine={"args": ["--no-such-flag"]}))
        assert run.wait_exit() == 1
        assert run.failure()["reason"] == "BadArgument"
        assert "unrecognized arguments: --no-such-flag" in run.failure()["message"]

    def test_a_signal_and_no_secret_in_the_last_words(self, container: Start) -> None:
        words = f"OSError: {KEY} {TOKEN} {PASSWORD} {SECRET_ENV['SGLANG_TEST_URL']} Authorization: Bearer {TOKEN}"
        run = container(env=SECRET_ENV, exit_code=-signal.SIGSEGV, last_words=words)
        assert run.wait_exit() == 1
        message = run.termination_log.read_text(encoding="utf-8")
        assert json.loads(message)["reason"] == "EngineKilled"
        assert "SIGSEGV" in message
        assert "[redacted]" in message
        for place, text in {"message": message, "log": run.log()}.items():
            assert [secret for secret in SECRETS if secret in text] == [], place

    def test_a_killed_runtime_takes_its_engine_along(self, container: Start) -> None:
        run = container()
        run.wait_ready()
        engine = [engine_of(run), *workers_of(run)]
        run.process.kill()
        run.wait_exit()
        deadline = time.monotonic() + 30
        while any(map(runs, engine)):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def test_a_closed_log_stops_nothing(self, container: Start) -> None:
        run = container(within=["sh", "-c", 'exec "$@" >&- 2>&-', "sh"])
        run.wait_ready()
        run.terminate()
        assert run.wait_exit() == 0


class TestGroup:
    """Worker pods, whose engine has no /ready and serves no requests."""

    PLAN = make_plan(runtime={"nodes": 2, "drain_seconds": 300})

    def env(self, leader: str) -> dict[str, str]:
        return {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": leader}

    def test_a_worker_pod_sends_no_image_and_ends_after_its_leader(self, container: Start) -> None:
        run = container(
            self.PLAN, env=self.env("127.0.0.1"), ready_path=False
        )  # its own runtime stands for the leader's
        run.wait_ready()
        assert "'dist_init_addr': '127.0.0.1:20000'" in run.log()
        assert "question" not in run.log()
        assert run.report()["firstImageSeconds"] is None
        engine = engine_of(run)
        run.terminate()
        run.wait_for(lambda: "waiting for the leader" in run.log(), "waiting")
        time.sleep(1)
        assert run.process.poll() is None
        assert run.get("/health", run.engine_port)[0] == 200  # it got no SIGTERM
        os.kill(engine, signal.SIGTERM)  # what the leader's last message does
        assert run.wait_exit() == 0
        assert not run.termination_log.exists()

    def test_a_worker_pod_does_not_wait_for_a_leader_that_is_gone(self, container: Start) -> None:
        run = container(self.PLAN, env=self.env("leader.group.invalid"), ready_path=False)
        run.wait_ready()
        run.terminate()
        assert run.wait_exit() == 0
        assert "the leader of the group has ended" in run.log()
