"""Which requests the plugin refuses for naming a file of the pod."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vlm_runtime.sglang.files import is_path, refusing

DATA = "data:image/png;base64,iVBORw0KGgo="
BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def ask(**request: Any) -> Any:
    async def original(**kwargs: Any) -> str:
        return "prepared"

    return asyncio.run(refusing(original)(**request))


@pytest.mark.parametrize("source", ["file:///dev/zero", "FILE:///etc/passwd", "/etc/passwd", "/pictures/a.png"])
def test_a_path_is_refused_before_anything_is_opened(source: str):
    image = SimpleNamespace(url=source)
    for request in (
        {"image_data": [image]},
        {"image_data": [[image]]},
        {"image_data": [{"url": source}]},
        {"image_data": source},
        {"audio_data": [source]},
        {"request_obj": SimpleNamespace(video_data=[SimpleNamespace(url=source)])},
    ):
        with pytest.raises(ValueError, match="files are not taken"):
            ask(**request)


@pytest.mark.parametrize("source", [DATA, BASE64, "https://example.com/file:///a.png", b"\x89PNG", None])
def test_content_and_urls_are_let_through(source: Any):
    assert ask(image_data=[SimpleNamespace(url=source)], request_obj=SimpleNamespace(video_data=None)) == "prepared"
    assert ask(image_data=[source]) == "prepared"
    assert ask(image_data=None) == "prepared"


def test_a_path_without_a_scheme_is_known_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a b.mp4").touch()
    monkeypatch.chdir(tmp_path)
    assert is_path("a b.mp4")
    assert is_path("a%20b.mp4")
    assert not is_path("b.mp4")


def test_long_texts_are_content_even_where_they_begin_as_a_path():
    assert not is_path("/9j/" + "A" * 5000)
    assert not is_path("a\0b")
