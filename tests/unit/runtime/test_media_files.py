"""Requests that name a file of the pod are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vlm_runtime.sglang.inside.media_files import is_path, refusing

DATA = "data:image/png;base64,iVBORw0KGgo="
BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def ask(options: Any = None, /, **request: Any) -> Any:
    async def original(**kwargs: Any) -> str:
        return "prepared"

    return asyncio.run(refusing(original, **(options or {}))(**request))


@pytest.mark.parametrize("source", ["file:///dev/zero", "FILE:///etc/passwd", "/etc/passwd", "/pictures/a.png"])
def test_a_path_is_refused_before_anything_is_opened(source: str):
    image = SimpleNamespace(url=source)
    for request in (
        {"image_data": [image]},
        {"image_data": [[image]]},
        {"image_data": [{"url": source}]},
        {"image_data": source},
        {"request_obj": SimpleNamespace(video_data=[{"video_path": source, "fps": 2.0}])},
        {"image_data": [{"format": "x", "nested": {"file": [source]}}]},
        {"audio_data": [source]},
        {"request_obj": SimpleNamespace(video_data=[SimpleNamespace(url=source)])},
    ):
        with pytest.raises(ValueError, match="may not name files"):
            ask(**request)


@pytest.mark.parametrize("source", [DATA, BASE64, "https://example.com/file:///a.png", b"\x89PNG", None])
def test_content_and_urls_are_allowed(source: Any):
    assert ask(image_data=[SimpleNamespace(url=source)], request_obj=SimpleNamespace(video_data=None)) == "prepared"
    assert ask(image_data=[source]) == "prepared"
    assert ask(image_data=None) == "prepared"
    assert ask(image_data=[{"format": "precomputed_embedding", "feature": [[0.5, 1]], "url": source}]) == "prepared"


@pytest.mark.parametrize(
    "source",
    ["HTTP://h/a.png", "concat:/etc/passwd|/etc/hosts", "subfile,,start,0,end,9,,:/etc/passwd", "rtsp://h/a", "DATA:,a", "tcp://h:1"],
)  # fmt: skip
def test_other_schemes_are_refused_even_where_files_are_allowed(source: str):
    for options in ({}, {"allow_files": True}):
        with pytest.raises(ValueError, match=r"data:, http://, https:// only"):
            ask(options, request_obj=SimpleNamespace(video_data=[source]))


def test_files_are_opened_where_they_are_allowed():
    assert ask({"allow_files": True}, image_data=["file:///pictures/a.png", "/pictures/b.png"]) == "prepared"


def test_a_path_without_a_scheme_is_refused_if_its_file_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a b.mp4").touch()
    monkeypatch.chdir(tmp_path)
    assert is_path("a b.mp4")
    assert is_path("a%20b.mp4")
    assert not is_path("b.mp4")


def test_long_texts_are_content_even_if_they_begin_like_a_path():
    assert not is_path("/9j/" + "A" * 5000)
    assert not is_path("a\0b")
