"""Faults of the kinds that a pod meets, one after the other, with the unchanged SGLang: each ends with its reason."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from engine.conftest import ARGS, ENV, MODEL, Start
from unit.inspect.hub_stand_in import Answer, hub_stand_in
from unit.runtime.harness import Container

from vlm_api.reasons import FAILURES
from vlm_runtime.sglang.processes import WorkerProcess, children, worker_processes

pytestmark = pytest.mark.timeout(600)

# A pod has a /dev/shm and an IPC namespace of its own. The file takes the place of what an earlier engine, or a person,
# left in the volume, which outlives the container.
FULL_SHARED_MEMORY = """
mount -t tmpfs -o size=4m tmpfs /dev/shm && head -c 4M /dev/zero > /dev/shm/$0 && exec "$@"
"""


def with_full_shared_memory(file: str) -> list[str]:
    return ["unshare", "--mount", "--ipc", "--propagation", "private", "sh", "-c", FULL_SHARED_MEMORY, file]


def processes(run: Container) -> tuple[int, list[WorkerProcess]]:
    """The engine's main process, and its workers."""
    (main,) = children(run.process.pid)
    return main, worker_processes(main)


def is_gone(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


def test_a_full_shared_memory(engine: Start) -> None:
    run = engine(within=with_full_shared_memory("weights.of.mine"))
    assert run.wait_exit(120) == 1
    assert run.failure()["reason"] == "SharedMemoryFull"
    assert "No space left on device" in run.failure()["message"]


def test_a_model_of_text_alone(engine: Start, tmp_path: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / file).symlink_to(MODEL / file)
    config = json.loads((MODEL / "config.json").read_text())["text_config"]
    config |= {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16"}
    config["rope_parameters"] = {"rope_theta": 10000.0, "rope_type": "default"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    args = ["--model-path", str(tmp_path), *ARGS[2:], "--load-format", "dummy"]
    run = engine(engine={"args": args, "env": ENV})
    assert run.wait_exit(300) == 1
    assert run.failure()["reason"] == "ImageNotSeen"


def test_weights_in_whose_place_git_lfs_left_its_pointers(engine: Start, tmp_path: Path) -> None:
    for file in MODEL.iterdir():
        if file.suffix == ".safetensors":
            (tmp_path / file.name).write_text(
                "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
            )
        else:
            (tmp_path / file.name).symlink_to(file)
    run = engine(engine={"args": ["--model-path", str(tmp_path), *ARGS[2:]], "env": ENV})
    assert run.wait_exit(120) == 1
    assert run.failure()["reason"] == "ModelUnreadable"
    assert run.failure()["message"].startswith(f"{tmp_path} exists, but ")


def test_a_gated_model_without_a_token(engine: Start, tmp_path: Path) -> None:
    with hub_stand_in() as hub:
        hub.next = lambda _: Answer(status=401, headers={"X-Error-Code": "GatedRepo"})  # type: ignore[method-assign]
        run = engine(
            engine={"args": ["--model-path", "org/model", *ARGS[2:]], "env": ENV},
            env={"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)},
        )
        assert run.wait_exit(120) == 1
    assert run.failure()["reason"] == "ModelAccessDenied"
    assert run.failure()["message"].startswith("org/model ")
    assert FAILURES["ModelAccessDenied"] in run.failure()["message"]


def test_a_killed_runtime_leaves_nothing_of_the_engine_behind(engine: Start) -> None:
    run = engine()
    run.wait_for(lambda: "Load weight begin" in run.log(), "loading", seconds=120)
    main, found = processes(run)
    assert any("scheduler" in worker.title for worker in found)
    run.process.kill()
    run.process.wait(5)
    deadline = time.monotonic() + 20
    while left := [pid for pid in (main, *(worker.pid for worker in found)) if not is_gone(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


HANG = {"options": ["--hang-seconds", "8"], "env": {"SGLANG_HEALTH_CHECK_TIMEOUT": "3"}}


def test_a_scheduler_that_hangs_in_an_engine_that_found_an_earlier_ones_segments(engine: Start) -> None:
    run = engine(within=with_full_shared_memory("sgl_shm_mm_4711_0a1b2c3d"), **HANG)
    run.wait_ready(450)
    assert "removed 1 files of 4 MiB that an earlier engine left in /dev/shm" in run.log()

    scheduler = next(worker for worker in processes(run)[1] if "scheduler" in worker.title)
    os.kill(scheduler.pid, signal.SIGSTOP)
    run.wait_for(lambda: "have not answered" in run.get("/readyz")[1], "unready", seconds=60)
    # Whoever asks now makes the engine call itself unhealthy, until somebody asks again.
    assert run.get("/health", run.engine_port)[0] == 503
    os.kill(scheduler.pid, signal.SIGCONT)
    run.wait_ready(60)
    assert "it answers again" in run.log()
    assert not run.termination_log.exists()

    os.kill(scheduler.pid, signal.SIGSTOP)
    assert run.wait_exit(90) == 1
    assert run.failure()["reason"] == "EngineHung"
    assert "schedulers have not answered" in run.failure()["message"]


def test_a_server_that_hangs_in_the_next_engine(engine: Start) -> None:
    run = engine(**HANG)
    run.wait_ready(450)
    main, found = processes(run)
    os.kill(main, signal.SIGSTOP)
    assert run.wait_exit(120) == 1
    assert run.failure()["reason"] == "EngineHung"
    assert "server has not answered" in run.failure()["message"]
    assert [worker.pid for worker in found if not is_gone(worker.pid)] == []
