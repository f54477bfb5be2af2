"""Videos: what the engine makes of them, and what a plan does with it. The numbers are those of SGLang's own processors, which
tests/conformance/test_videos.py runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.plan.builders import REFERENCE_WORKLOAD, plan, service

from vlm_api.plan import Finding, ServingPlan
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.profiles import family_of, shipped
from vlm_operator.sglang.videos import Clip, Sampling
from vlm_operator.sglang.videos.spaced import Spaced

SHORT = {"seconds": 10, "framesPerSecond": 30, "width": 640, "height": 360}


def sampling_of(architecture: str) -> Sampling:
    family = family_of(architecture)
    assert family is not None
    assert family.videos is not None
    return family.videos


@pytest.mark.parametrize(
    ("architecture", "size", "prompt_tokens", "tokens", "video_bytes"),
    [
        ("Qwen2VLForConditionalGeneration", (640, 360), 2992, 2990, 56_259_840),
        ("Qwen2_5_VLForConditionalGeneration", (1280, 720), 7202, 7200, 135_475_200),
        ("Qwen3VLForConditionalGeneration", (640, 360), 2282, 2200, 54_067_200),
        ("Qwen3_5ForConditionalGeneration", (640, 360), 2282, 2200, 54_067_200),
    ],
)
def test_ten_seconds_become_as_many_tokens_and_bytes_as_the_processor_makes_of_them(
    architecture: str, size: tuple[int, int], prompt_tokens: int, tokens: int, video_bytes: int
) -> None:
    video = sampling_of(architecture).sample(Clip(10, 30, *size))
    assert (video.frames, video.prompt_tokens, video.tokens, video.bytes) == (20, prompt_tokens, tokens, video_bytes)


def test_every_family_says_how_its_videos_are_sampled_or_why_they_are_not_counted() -> None:
    silent = [f.family for f in shipped() if f.videos is None and f.takes_videos and f.uncounted_videos is None]
    assert silent == ["grok_1"]  # the engine has no model of it


@given(
    st.sampled_from([family.videos for family in shipped() if family.videos is not None]),
    st.integers(1, 86_400), st.integers(1, 240), st.integers(16, 3000), st.integers(16, 3000),
)  # fmt: skip
def test_a_video_of_any_length_is_counted_or_refused_with_a_bounded_number_of_frames(
    sampling: Sampling, seconds: int, rate: int, width: int, height: int
) -> None:
    clip = Clip(seconds, rate, width, height)
    try:
        video = sampling.sample(clip)
    except ValueError:
        return
    most = sampling.max_pixels // sampling.shortest_side**2 if isinstance(sampling, Spaced) else 2048
    assert 1 <= video.frames <= most
    assert video.tokens > 0
    assert video.kept_tokens < 1_000_000


def planned(video: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **spec: Any) -> ServingPlan:
    workload = REFERENCE_WORKLOAD | {"concurrency": 16, "videos": SHORT if video is None else SHORT | video}
    return plan(service(workload=workload, **spec, **({} if model is None else {"model": model})))


def found(made: ServingPlan, reason: str) -> list[Finding]:
    return [finding for finding in made.findings if finding.reason == reason]


def test_a_plan_counts_videos_beside_images() -> None:
    with_videos, without = planned(), plan(service(workload=REFERENCE_WORKLOAD | {"concurrency": 16}))
    memory, before = with_videos.memory, without.memory
    assert (memory.video_frames, memory.video_tokens, memory.video_prompt_tokens) == (20, 2200, 2282)
    assert memory.video_bytes == 54_067_200
    assert (memory.image_tokens, before.video_tokens) == (256, None)
    assert (memory.host_memory_mib or 0) > (before.host_memory_mib or 0) + 16 * 51
    pool = with_videos.setting("SGLANG_MM_FEATURE_CACHE_MB")
    assert pool is not None
    assert "(16 images x 6.000 MiB + 16 videos x 51.562 MiB) x 1.1 = 1,024 MiB" in pool.reason


def test_many_videos_fill_dev_shm_and_the_pool_is_capped_with_both_named() -> None:
    made = planned({"seconds": 600, "width": 1280, "height": 720, "perRequest": 4})
    assert (made.memory.shared_memory_mib or 0) > 16 * 4 * (made.memory.video_bytes or 0) / 2**20
    (capped,) = found(made, "FeaturePoolCapped")
    assert "the images and videos of" in capped.message
    assert "smaller images and videos" in capped.message
    assert capped.path == "spec.workload"


def test_a_request_that_is_longer_than_the_context_with_its_videos_is_told() -> None:
    settings = {"settings": {"context_length": 2048}}
    (short,) = found(planned(engine=settings), "ContextTooShort")
    assert "a declared request has 2,796 tokens with its images and videos" in short.message


def test_the_user_s_limits_of_videos_count() -> None:
    fewer = planned(engine={"settings": {"mm_process_config": {"video": {"fps": 1, "max_frames": 6}}}})
    assert fewer.memory.video_frames == 6


def test_a_video_that_the_processor_refuses_is_refused_as_input() -> None:
    with pytest.raises(InvalidInput, match="the engine refuses such videos") as refused:
        planned({"seconds": 1, "framesPerSecond": 1})
    assert refused.value.path == "spec.workload.videos"


@pytest.mark.parametrize(
    ("architecture", "reason", "says"),
    [
        ("OursForConditionalGeneration", "VideosNotCounted", "its family is unknown"),
        ("InternS2PreviewForConditionalGeneration", "VideosNotCounted", "IndexError"),
        ("Gemma3ForConditionalGeneration", "VideosNotTaken", "takes no videos for Gemma3ForConditionalGeneration"),
        ("Qwen3VLForConditionalGeneration", None, ""),
    ],
)
def test_videos_that_are_not_counted_are_said(architecture: str, reason: str | None, says: str) -> None:
    made = planned(model={"uri": "pvc://models/ours", "architecture": architecture, "parametersBillion": 8})
    messages = [finding.message for finding in made.findings if finding.reason.startswith("Videos")]
    assert len(messages) == (reason is not None)
    assert all(says in message for message in messages)
    assert (made.memory.video_tokens is None) == (reason is not None)


def test_enforced_workloads_limit_the_videos_of_a_request() -> None:
    images = REFERENCE_WORKLOAD["images"] | {"enforce": True}
    made = plan(service(workload=REFERENCE_WORKLOAD | {"images": images, "videos": SHORT | {"perRequest": 3}}))
    limit = made.setting("limit_mm_data_per_request")
    assert limit is not None
    assert (limit.value, limit.reason) == (
        {"image": 1, "video": 3},
        "workload.images.enforce: at most 1 images and 3 videos a request",
    )
    assert made.runtime.limits is not None
    assert made.runtime.limits.videos == 3


def test_a_user_s_limit_below_the_declared_videos_is_told() -> None:
    made = planned({"perRequest": 3}, engine={"settings": {"limit_mm_data_per_request": {"video": 2}}})
    (refused,) = found(made, "VideosRefused")
    assert "declared requests have 3 videos and the engine is set to accept 2" in refused.message


@pytest.mark.parametrize(
    ("seconds", "frames"),
    # Three a second for each of two frames of a patch, then one and a half; at most 640. GLM-4.1V takes two a second, and
    # 600 of longer videos.
    [(10, 60), (30, 180), (60, 120), (300, 600), (3600, 640)],
)
def test_of_glm_models_that_share_an_architecture_the_one_with_more_frames_counts(seconds: int, frames: int) -> None:
    clip = Clip(seconds, 30, 640, 360)
    assert sampling_of("Glm4vMoeForConditionalGeneration").sample(clip).frames == frames


def test_internvl_takes_fewer_frames_if_the_context_leaves_less_for_them() -> None:
    model = {"uri": "pvc://models/ours", "architecture": "InternVLChatModel", "parametersBillion": 8}
    assert planned(model=model).memory.video_frames == 32
    short = {"settings": {"context_length": 8192}}
    # 8,192 less 128 of text, 2,562 of an image and 256 that stay free, for two videos.
    assert planned({"perRequest": 2}, model, engine=short).memory.video_frames == (8192 - 128 - 2562 - 256) // 256 // 2


def test_limits_of_the_user_that_are_not_read_are_said() -> None:
    made = planned(engine={"settings": {"mm_process_config": {"video": {"resized_height": 100, "resized_width": 100}}}})
    (told,) = found(made, "VideosNotCounted")
    assert "mm_process_config.video sets resized_height, resized_width" in told.message
    assert made.memory.video_tokens is None


def test_long_videos_that_are_decoded_on_the_gpu_are_told_and_short_ones_are_not() -> None:
    long = {"seconds": 300, "width": 1920, "height": 1080}
    (told,) = found(planned(long), "VideosPreparedOnGpu")
    # 600 frames of 6,220,800 bytes, and features of 225 MiB.
    assert "one takes about 3,784 MiB there" in told.message
    assert found(planned(), "VideosPreparedOnGpu") == []
    glm = {"uri": "pvc://models/ours", "architecture": "Glm4vForConditionalGeneration", "parametersBillion": 9}
    assert found(planned(long, glm), "VideosPreparedOnGpu") == []
