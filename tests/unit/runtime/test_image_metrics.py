"""Metrics of the images in requests, which never fail a request."""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from vlm_runtime.sglang.inside.image_metrics import (
    ImageCounter,
    around_preprocessing,
    feature_bytes,
    inline_bytes,
    source_of,
)


@dataclass
class ImageData:
    """As SGLang's: what its OpenAI API makes of an image."""

    url: str


@dataclass
class Item:
    """As SGLang's MultimodalDataItem, as far as it is read."""

    feature: Any
    image: bool = True

    def is_image(self) -> bool:
        return self.image


@dataclass
class Inputs:
    """As SGLang's result of preprocessing."""

    mm_items: list[Item] = field(default_factory=list)


class Processor:
    """As SGLang's processors; the hook gets the method unbound, as SGLang's registry gives it."""

    def __init__(self, result: Any = None) -> None:
        self.result = result

    async def process_mm_data_async(self, image_data: Any = None, input_text: str = "", **_: Any) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def data_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


class Run:
    """Requests through the hook, and what was counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.around = around_preprocessing(ImageCounter(self.registry))

    def ask(self, images: Any, result: Any = None) -> Any:
        original = Processor.process_mm_data_async
        return asyncio.run(self.around(original, Processor(result), image_data=images, input_text="?"))

    def value(self, name: str) -> float:
        value = self.registry.get_sample_value(name)
        assert value is not None, name
        return value


def test_images_and_repeated_images_are_counted() -> None:
    run = Run()
    run.ask([ImageData(data_url(b"cat")), ImageData(data_url(b"dog"))])
    run.ask([ImageData(data_url(b"cat"))])
    run.ask([data_url(b"dog"), b"raw bytes"])
    assert run.value("vlmserve_images_received_total") == 5
    assert run.value("vlmserve_images_repeated_total") == 2


def test_images_per_request_leave_out_requests_without_any() -> None:
    run = Run()
    for images in ([ImageData("a"), ImageData("b"), ImageData("c")], ImageData("d"), None, []):
        run.ask(images)
    assert run.value("vlmserve_request_images_count") == 2
    assert run.value("vlmserve_request_images_sum") == 4
    assert run.registry.get_sample_value("vlmserve_request_images_bucket", {"le": "1.0"}) == 1


def test_images_without_text_or_bytes_never_count_as_repeated() -> None:
    run = Run()
    pixels = {"format": "processor_output"}
    run.ask([pixels])
    run.ask([pixels])
    assert run.value("vlmserve_images_received_total") == 2
    assert run.value("vlmserve_images_repeated_total") == 0


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (data_url(b"x" * 1000), 1000),
        (data_url(b"x" * 1001), 1001),
        (data_url(b"x" * 1002), 1002),
        (b"x" * 1000, 1000),
        (base64.b64encode(b"x" * 9000).decode(), 9000),
        ("https://pictures.example/cat.png", 0),
        ("/data/cat.png", 0),
        ("file:///data/" + "x" * 5000, 0),
        (None, 0),
    ],
)
def test_bytes_are_those_of_the_encoded_image_in_the_request(source: Any, expected: int) -> None:
    assert inline_bytes(source) == expected


def test_the_bytes_of_features_are_counted_on_cpu_and_gpu() -> None:
    on_gpu = SimpleNamespace(proxy_state={"ipc_extra": {"nbytes": 6291456}})
    items = [Item(on_gpu), Item(SimpleNamespace(nbytes=100)), Item([SimpleNamespace(nbytes=7)] * 2), Item(None)]
    video = Item(SimpleNamespace(nbytes=5000), image=False)
    assert feature_bytes(Inputs([*items, video])) == 6291456 + 100 + 14
    assert feature_bytes({"mm_items": items}) == 6291456 + 100 + 14  # as older versions answer
    assert feature_bytes(None) == 0


def test_preprocessing_is_timed_and_its_result_returned() -> None:
    run = Run()
    result = Inputs([Item(SimpleNamespace(nbytes=64))])
    assert run.ask([ImageData("a")], result) is result
    assert run.value("vlmserve_image_preprocessing_seconds_count") == 1
    assert run.value("vlmserve_image_feature_bytes_total") == 64


def test_an_unreadable_image_stays_the_engines_error() -> None:
    run = Run()
    with pytest.raises(ValueError, match="broken PNG"):
        run.ask([ImageData("a")], ValueError("broken PNG"))
    assert run.value("vlmserve_images_received_total") == 1
    assert run.value("vlmserve_image_preprocessing_seconds_count") == 0


def test_a_result_of_another_release_costs_the_metrics_not_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run()
    strange = Inputs([SimpleNamespace(is_image=lambda: True)])  # type: ignore[list-item]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert run.ask([ImageData("a")], strange) is strange
    assert [record.message for record in caplog.records] == [
        "vlm-runtime: no metrics of images: AttributeError: 'types.SimpleNamespace' object has no attribute 'feature'"
    ]


def test_the_source_of_an_image_is_its_url_its_text_or_its_bytes() -> None:
    assert [source_of(item) for item in (ImageData("u"), "t", b"b", 3)] == ["u", "t", b"b", None]
