"""What one request may bring: bytes, images, pixels."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import sys
import zlib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from vlm_api.limits import RequestLimits, request_limits
from vlm_api.workload import Images, Videos, Workload
from vlm_runtime.sglang.inside.body_limit import BodyLimit
from vlm_runtime.sglang.inside.image_size import UnreadableImage, pixels_of
from vlm_runtime.sglang.inside.limits import Limits, fetching, limit_fetched, limits_of_environment
from vlm_runtime.sglang.inside.media_files import refusing

LIMITS = Limits(body_bytes=100, images=2, image_pixels=5_000, request_pixels=8_000, videos=1)


def encoded(format: str, size: tuple[int, int], **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size).save(file, format, **options)
    return file.getvalue()


def data_url(content: bytes) -> str:
    return "data:image/any;base64," + base64.b64encode(content).decode()


def exif(kilobytes: int) -> bytes:
    return b"Exif\0\0" + b"x" * 1024 * kilobytes


@pytest.mark.parametrize(
    "content",
    [
        encoded("JPEG", (70, 50)), encoded("JPEG", (70, 50), exif=exif(60)),
        encoded("JPEG", (70, 50), icc_profile=b"p" * 200_000),
        encoded("JPEG", (70, 50), progressive=True), encoded("PNG", (70, 50)), encoded("WEBP", (70, 50)),
        encoded("WEBP", (70, 50), lossless=True), encoded("WEBP", (70, 50), exif=exif(1)), encoded("GIF", (70, 50)),
        encoded("BMP", (70, 50)), encoded("TIFF", (70, 50)),
        b"\xff\xd8\xff\xff\xff" + encoded("JPEG", (70, 50))[3:], b"\xff\xd8\0\0" + encoded("JPEG", (70, 50))[2:],
    ],
)  # fmt: skip
def test_an_image_s_size_stands_in_its_header(content: bytes) -> None:
    text = base64.b64encode(content).decode()
    assert pixels_of(content) == pixels_of(text) == pixels_of(data_url(content)) == 3500


def huge_jpeg() -> bytes:
    """A small file that says it has 65,500 x 65,500 pixels."""
    content = encoded("JPEG", (8, 8))
    frame = content.index(b"\xff\xc0")
    return content[: frame + 5] + struct.pack(">HH", 65_500, 65_500) + content[frame + 9 :]


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": exif(1)}])
def test_of_an_image_s_base64_only_the_header_is_read(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [(f, data_url(encoded(f, (1921, 1081), **options))) for f in ("JPEG", "PNG", "WEBP")]
    monkeypatch.setattr("vlm_runtime.sglang.inside.image_size._pixels_by_pillow", None)
    for format, text in texts:
        assert pixels_of(text) == 1921 * 1081, format


def test_nothing_is_decoded_to_see_that_an_image_is_huge() -> None:
    assert pixels_of(data_url(huge_jpeg())) == 65_500 * 65_500
    png = encoded("PNG", (8, 8))
    assert pixels_of(png[:16] + struct.pack(">II", 1 << 31, 1 << 31) + png[24:]) == 1 << 62


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@pytest.mark.parametrize(
    "in_front", [chunk(b"tEXt", struct.pack(">II", 1, 1)), chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))]
)
def test_a_small_size_in_front_of_a_png_s_own_hides_nothing(in_front: bytes) -> None:
    png = encoded("PNG", (70, 50))
    hiding = png[:8] + in_front + png[8:]
    assert Image.open(io.BytesIO(hiding)).size == (70, 50)
    assert pixels_of(hiding) == pixels_of(data_url(hiding)) == 3500


def test_a_small_size_in_front_of_a_jpeg_s_own_hides_nothing() -> None:
    content = encoded("JPEG", (70, 50))
    at = content.index(b"\xff\xc0")
    frame = content[at : at + 2 + int.from_bytes(content[at + 2 : at + 4], "big")]
    assert pixels_of(content[:at] + frame[:5] + struct.pack(">HH", 1, 1) + frame[9:] + content[at:]) == 3500


def test_a_data_url_may_have_many_words_before_its_content() -> None:
    kind, _, content = data_url(huge_jpeg()).partition(",")
    assert pixels_of(f"{kind};{'x' * 5000},{content}") == 65_500 * 65_500


def test_a_jpeg_that_hides_its_size_is_refused() -> None:
    for hiding in (b"\xff\xfe\0\2", b"\xff\xd0", b"\0"):
        with pytest.raises(UnreadableImage, match="save it anew"):
            pixels_of(b"\xff\xd8" + hiding * 5000 + huge_jpeg()[2:])
    png = encoded("PNG", (8, 8))
    with pytest.raises(UnreadableImage, match="save it anew"):
        pixels_of(png[:8] + chunk(b"tEXt", b"") * 5000 + png[8:])


@pytest.mark.parametrize(
    "source", ["", "x", "data:", "data:,", "%%%%", "ä", b"", b"\xff\xd8", b"\x89PNG", "A" * 50, "\0" * 40]
)
def test_what_is_no_image_is_left_to_the_engine(source: str | bytes) -> None:
    assert not pixels_of(source)


def process(images: Any, limits: Limits = LIMITS, **options: Any) -> Any:
    async def original(**kwargs: Any) -> str:
        return "prepared"

    return asyncio.run(refusing(original, limits, **options)(image_data=images, request_obj=None))


SMALL, LARGE, HUGE = (data_url(encoded("PNG", size)) for size in ((10, 10), (70, 60), (100, 100)))


def test_too_many_and_too_large_images_are_refused_with_the_field() -> None:
    assert process([SMALL, LARGE]) == process(None) == process([]) == process("https://a/b.png") == "prepared"
    for images, why in (
        ([SMALL] * 3, "3 images, and the service accepts 2: .* spec.workload.images.perRequest"),
        ([["https://a/b.png"] * 2, [SMALL]], "3 images"),
        (
            [SimpleNamespace(url=HUGE)],
            "an image has 10000 pixels, and the service accepts 5000: .* spec.workload.images",
        ),
        ({"image": HUGE}, "10000 pixels"),
        (HUGE.partition(",")[2], "10000 pixels"),
        ([LARGE, LARGE], "images have 8400 pixels, and the service accepts 8000"),
        ([data_url(huge_jpeg())], "4290250000 pixels"),
    ):
        for options in ({}, {"allow_files": True}):
            with pytest.raises(ValueError, match=why):
                process(images, **options)


def test_an_image_that_the_engine_fetches_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_image_bytes(source: Any) -> bytes:
        return huge_jpeg()

    for name in ("sglang.srt.utils.common", "sglang.srt.multimodal.processors.llava"):
        module = ModuleType(name)
        module.get_image_bytes = get_image_bytes  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    limit_fetched(LIMITS)
    for name in ("sglang.srt.utils.common", "sglang.srt.multimodal.processors.llava"):
        with pytest.raises(ValueError, match="4290250000 pixels"):
            sys.modules[name].get_image_bytes("https://a/b.jpg")
    assert fetching(lambda _: b"\0\0\0\x20ftypisom", LIMITS)("https://a/b.mp4")


def upload(pieces: list[bytes], most: int = 100, **headers: str) -> tuple[list[Any], bytes]:
    """What the client gets for a body in pieces, and what the application has read."""
    sent: list[Any] = []
    read = b""
    messages = [{"type": "http.request", "body": p, "more_body": i + 1 < len(pieces)} for i, p in enumerate(pieces)]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal read
        while (message := await receive())["type"] == "http.request":
            read += message["body"]
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]}
    asyncio.run(BodyLimit(app, most)(scope, receive, send))
    return sent, read


def test_a_body_ends_at_its_limit() -> None:
    sent, read = upload([b"x" * 60, b"x" * 40], content_length="100")
    assert (sent[0]["status"], len(read)) == (200, 100)
    for pieces, headers, most_read in (
        ([b"x" * 101], {"content_length": "101"}, 0),
        ([b"x"], {"content_length": "9" * 5000}, 0),
        ([b"x" * 60, b"x" * 41, b"x" * 60], {}, 60),
    ):
        sent, read = upload(pieces, **headers)
        assert [m["type"] for m in sent] == ["http.response.start", "http.response.body"]
        assert (sent[0]["status"], len(read)) == (413, most_read)
        assert (b"connection", b"close") in sent[0]["headers"]
        assert "may have 100 bytes" in json.loads(sent[1]["body"])["error"]["message"]


def limits_of(**images: Any) -> RequestLimits:
    return request_limits(Workload(images=Images(**images)))


def test_limits_are_four_times_what_is_declared_and_never_below_the_usual() -> None:
    usual = RequestLimits()
    assert (usual.body_bytes, usual.images, usual.image_pixels) == (64 << 20, 32, 100_000_000)
    assert limits_of() == limits_of(per_request=8, width=512, height=512) == usual
    large = limits_of(per_request=20, width=6000, height=6000)
    assert large == RequestLimits(
        body_bytes=4 * 20 * 36_000_000 * 4, images=80, image_pixels=144_000_000, request_pixels=4 * 20 * 36_000_000
    )
    own = request_limits(Workload(), {"image": 50, "video": 9})
    assert (own.images, own.videos) == (50, 9)
    exact = request_limits(Workload(images=Images(per_request=2, width=512, height=256, enforce=True)), {"image": 50})
    assert exact == RequestLimits(images=2, image_pixels=512 * 256, request_pixels=2 * 512 * 256, videos=0)
    assert limits_of(enforce=True) == RequestLimits(images=1, videos=0)


def test_declared_videos_raise_the_limits_of_number_and_body_and_are_exact_if_enforced() -> None:
    clip = Videos(per_request=3, seconds=60, frames_per_second=30, width=1920, height=1080)
    usual = request_limits(Workload(videos=clip))
    assert usual == RequestLimits(body_bytes=4 * 3 * 60 * 30 * 1920 * 1080 // 6, videos=12)
    assert request_limits(Workload(videos=clip, images=Images(enforce=True))).videos == 3


def test_more_videos_than_the_limit_are_refused_and_a_list_of_frames_is_one_video() -> None:
    for videos in ("data:a", ["data:a"], [["data:a", "data:b"]], [], None):
        LIMITS.refuse_videos(videos)
    with pytest.raises(
        ValueError, match=r"has 2 videos, and the service accepts 1: .* spec\.workload\.videos\.perRequest"
    ):
        LIMITS.refuse_videos(["data:a", "data:b"])


def test_the_hook_counts_a_request_s_videos() -> None:
    async def original(**_: Any) -> None: ...

    request = SimpleNamespace(video_data=["data:video/mp4;base64,AA", "data:video/mp4;base64,AA"])
    with pytest.raises(ValueError, match="the service accepts 1"):
        asyncio.run(refusing(original, LIMITS)(image_data=None, request_obj=request))


def test_the_plugin_reads_what_the_runtime_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLMSERVE_GUARD_LIMITS", raising=False)
    assert limits_of_environment() is None
    monkeypatch.setenv("VLMSERVE_GUARD_LIMITS", "1,2,3,4,5")
    assert limits_of_environment() == Limits(1, 2, 3, 4, 5)
    assert tuple(RequestLimits.model_fields) == Limits._fields
