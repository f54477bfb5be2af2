"""Duration of the vision tower, with a stand-in for PyTorch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from vlm_runtime.sglang.inside.vision_timer import VisionTimer, around_encoding, install


class Event:
    """Stands in for a CUDA event: over when the test says so."""

    time_ms = 0.0
    over = True

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = Event.time_ms

    def query(self) -> bool:
        return Event.over

    def elapsed_time(self, last: Event) -> float:
        return last.at - self.at


def torch(*, gpu: bool, rank: int | None = 0, capturing: bool = False) -> Any:
    """As far as it is asked."""
    return SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=lambda: rank is not None, get_rank=lambda: rank),
        cuda=SimpleNamespace(is_initialized=lambda: gpu, is_current_stream_capturing=lambda: capturing, Event=Event),
    )


def encoder(seconds: float) -> Any:
    def get_image_feature(model: object, items: list[Any]) -> str:
        Event.time_ms += seconds * 1000
        return f"{len(items)} features"

    return get_image_feature


class Run:
    """A model whose vision tower is timed."""

    def __init__(self, torch: Any) -> None:
        self.registry = CollectorRegistry()
        self.around = around_encoding(VisionTimer(torch, self.registry))
        Event.over = True

    def encode(self, images: int, seconds: float = 0.0) -> None:
        items = [SimpleNamespace(offsets=[(0, 63)]) for _ in range(images)]
        assert self.around(encoder(seconds), object(), items) == f"{images} features"

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"vlmserve_vision_{name}")


def test_on_the_cpu_a_batch_is_timed_directly() -> None:
    run = Run(torch(gpu=False))
    run.encode(3)
    assert (run.value("encode_seconds_count"), run.value("encoded_images_total")) == (1, 3)


def test_on_a_gpu_events_are_read_without_waiting() -> None:
    run = Run(torch(gpu=True))
    Event.over = False
    run.encode(1, seconds=0.5)
    assert run.value("encode_seconds_count") == 0  # still computing
    Event.over = True
    run.encode(2, seconds=0.25)
    assert run.value("encode_seconds_count") == 2
    assert run.value("encode_seconds_sum") == pytest.approx(0.75)
    assert run.value("encoded_images_total") == 3


def test_pending_events_are_bounded() -> None:
    run = Run(torch(gpu=True))
    Event.over = False
    for _ in range(1000):
        run.encode(1)
    Event.over = True
    run.encode(1)
    assert run.value("encode_seconds_count") == 64


def test_nothing_is_recorded_during_graph_capture() -> None:
    run = Run(torch(gpu=True, capturing=True))
    run.encode(1)
    assert run.value("encode_seconds_count") == 0


@pytest.mark.parametrize(("rank", "counts"), [(0, True), (None, True), (1, False)])
def test_only_the_first_rank_counts(rank: int | None, counts: bool) -> None:
    run = Run(torch(gpu=False, rank=rank))
    run.encode(2)
    assert run.value("encoded_images_total") == (2 if counts else None)


def test_an_item_may_hold_several_images() -> None:
    run = Run(torch(gpu=False))
    run.around(encoder(0.0), object(), [SimpleNamespace(offsets=[(0, 63), (70, 133)]), SimpleNamespace(offsets=None)])
    assert run.value("encoded_images_total") == 3


def test_an_error_of_the_vision_tower_stays_the_engines() -> None:
    def broken(model: object, items: list[Any]) -> None:
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        Run(torch(gpu=False)).around(broken, object(), [])


def test_in_a_process_without_a_model_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
    install()  # SGLang is not installed here: had it looked for it, this would raise
