"""The plugin in the process that serves HTTP: what it changes, and when."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vlm_runtime.sglang.inside import image_metrics as images
from vlm_runtime.sglang.inside import serving
from vlm_runtime.sglang.inside.failsafe import FailSafe
from vlm_runtime.sglang.inside.serving import OnStartup


def test_without_a_port_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLMSERVE_GUARD_PORT", raising=False)
    # uvicorn is not installed here: had it been asked for, this would raise.
    serving.install()


@pytest.mark.parametrize("module", ["serving", "vision_timer", "cpu"])
def test_the_plugins_import_no_heavy_module_early(module: str) -> None:
    # prometheus_client chooses its mode when it is imported: imported by a plugin, it would lose the engine's metrics.
    code = f"import sys, vlm_runtime.sglang.inside.{module}; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"prometheus_client", "pydantic", "uvicorn", "sglang", "torch", "pynvml"} & set(loaded)


def lifespan(app: Any) -> list[str]:
    """What the server hears of an application that starts."""
    heard: list[str] = []

    async def send(message: Any) -> None:
        heard.append(message["type"])

    asyncio.run(app({"type": "lifespan"}, None, send))
    return heard


def test_it_acts_once_the_engine_has_started_and_before_the_first_request() -> None:
    order: list[str] = []

    async def engine(scope: Any, receive: Any, send: Any) -> None:
        order.append("engine starts")
        await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    app = OnStartup(engine, lambda: order.append("counting starts"))
    assert lifespan(app) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert order == ["engine starts", "counting starts"]


def test_an_engine_that_does_not_start_is_not_hooked() -> None:
    async def engine(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.failed"})

    order: list[str] = []
    assert lifespan(OnStartup(engine, lambda: order.append("counting"))) == ["lifespan.startup.failed"]
    assert order == []


class TestCountingStarts:
    """``count_images`` at the start of an engine."""

    @pytest.fixture(autouse=True)
    def enabled(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
        caplog.set_level(logging.WARNING)

    def engine(self, monkeypatch: pytest.MonkeyPatch, state: object) -> None:
        module = ModuleType("sglang.srt.entrypoints.http_server")
        module.get_global_state = lambda: state  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)

    def test_an_unknown_release_costs_two_lines(self, caplog: pytest.LogCaptureFixture) -> None:
        images.count_images()
        assert [r.message.partition(":")[2] for r in caplog.records] == [
            " no metrics of images: KeyError: 'sglang.srt.entrypoints.http_server'",
            " no metrics of the feature pool: KeyError: 'sglang.srt.entrypoints.http_server'",
        ]

    def test_a_model_without_images_logs_nothing(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.engine(monkeypatch, SimpleNamespace(tokenizer_manager=SimpleNamespace(mm_processor=None)))
        images.count_images()
        assert caplog.records == []

    def test_without_metrics_nothing_is_hooked(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR")
        images.count_images()
        assert caplog.records == []


def test_after_its_first_error_our_code_is_never_called_again(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def broken() -> None:
        calls.append(1)
        raise LookupError("gone")

    fail_safe = FailSafe("images")
    with caplog.at_level(logging.WARNING):
        assert [fail_safe(broken) for _ in range(3)] == [None] * 3
    assert len(calls) == len(caplog.records) == 1
