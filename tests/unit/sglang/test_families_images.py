"""Every family's images: what the real processors of SGLang 0.5.23 made of some sizes, written down in images.tsv.

``tests/oracle`` asks the processors themselves, with other sizes.
"""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_operator.sglang.profiles import family_of, shipped

MADE = list(csv.DictReader(Path(__file__).with_name("images.tsv").open(), delimiter="\t"))
COUNTED = [family for family in shipped() if family.images is not None]


@pytest.mark.parametrize("architecture", sorted({row["architecture"] for row in MADE}))
def test_tokens_and_bytes_are_those_of_the_real_processor(architecture: str) -> None:
    for row in (each for each in MADE if each["architecture"] == architecture):
        width, height = int(row["width"]), int(row["height"])
        image = family_of(architecture).images.cut(width, height)
        ours = (image.prompt_tokens, image.tokens, image.bytes)
        assert ours == tuple(int(row[key]) for key in ("prompt_tokens", "tokens", "bytes")), f"{width} x {height}"
        # Masks and positions are not counted: less than one part in a hundred.
        assert 0 <= int(row["extra_bytes"]) - image.extra_bytes <= 0.01 * image.bytes + 64, f"{width} x {height}"


def test_every_family_that_was_checked_has_numbers_here() -> None:
    known = {row["architecture"] for row in MADE}
    assert [f.family for f in COUNTED if f.images.checked != "source" and not known & set(f.architectures)] == []


@pytest.mark.parametrize("family", COUNTED, ids=[family.family for family in COUNTED])
@given(width=st.integers(1, 20_000), height=st.integers(1, 20_000), images=st.integers(1, 20))
def test_every_size_is_counted_or_refused_with_a_sentence(family, width: int, height: int, images: int) -> None:
    try:
        image = family.images.cut(width, height, images)
    except ValueError as error:
        said = str(error)
        assert said.count(" ") > 5, said
        return
    assert image.bytes > 0
    assert image.tokens >= 0
    assert image.marks >= 0


SEVERAL = [
    # (architecture, images, tokens and bytes of all): 800 x 600 by the real processor.
    ("DeepseekVL2ForCausalLM", 2, 2830, 24_772_608),
    ("DeepseekVL2ForCausalLM", 3, 1263, 10_616_832),
    ("DeepseekOCRForCausalLM", 3, 819, 37_748_736),
    ("LlavaQwenForCausalLM", 2, 1458, 1_769_472),
    ("NemotronH_Nano_VL_V2", 3, 9992, 61_341_696),
    ("MiniCPMV4_6ForConditionalGeneration", 3, 987, 35_562_240),
    ("Gemma3ForConditionalGeneration", 3, 780, 28_901_376),
]


@pytest.mark.parametrize(("architecture", "images", "tokens", "size"), SEVERAL)
def test_the_number_of_images_counts_where_the_processor_looks_at_it(architecture, images, tokens, size) -> None:
    image = family_of(architecture).images.cut(800, 600, images)
    assert image.prompt_tokens == -(-tokens // images)
    assert image.bytes * images == size


def test_a_number_of_images_that_the_engine_refuses_is_refused() -> None:
    with pytest.raises(ValueError, match="2 images in a request are more than 1"):
        family_of("UnlimitedOCRForCausalLM").images.cut(800, 600, 2)


LIMITED = [
    # (architecture, mm_process_config's image, tokens, bytes): 1920 x 1080 by the real processor.
    ("Qwen3_5ForConditionalGeneration", {"max_pixels": 401_408}, 366, 8_945_664),
    ("Glm4vForConditionalGeneration", {"size": {"shortest_edge": 12_544, "longest_edge": 401_408}}, 254, 4_741_632),
    ("Glm5NextForConditionalGeneration", {"max_image_tokens": 512}, 512, 9_596_160),
    ("Gemma3ForConditionalGeneration", {"size": {"height": 448, "width": 448}}, 260, 2_408_448),
    ("Gemma4ForConditionalGeneration", {"max_soft_tokens": 1120}, 1102, 30_965_760),
    ("Llama4ForConditionalGeneration", {"max_patches": 4}, 727, 3_386_880),
    ("MllamaForConditionalGeneration", {"max_image_tiles": 1}, 1602, 3_763_200),
    ("Mistral3ForConditionalGeneration", {"size": {"longest_edge": 700}}, 390, 3_528_000),
    ("Cohere2VisionForConditionalGeneration", {"crop_to_patches": False}, 259, 3_145_728),
    ("Lfm2VlForConditionalGeneration", {"max_image_tokens": 64, "max_tiles": 2}, 577, 9_437_184),
    ("Lfm2VlForConditionalGeneration", {"do_image_splitting": False}, 254, 3_145_728),
    ("Ernie4_5_VLMoeForConditionalGeneration", {"size": {"longest_edge": 401_408}}, 512, 2_399_040),
    ("InternVLChatModel", {"max_pixels": 401_408, "max_dynamic_patch": 1}, 2306, 10_838_016),
    ("MiMoV2ForCausalLM", {"max_pixels": 401_408}, 2042, 50_135_040),
    ("KimiVLForConditionalGeneration", {"in_token_limit": 1024}, 1036, 9_709_056),
    ("MuseGlimmerForConditionalGeneration", {"max_image_tokens": 512}, 512, 9_596_160),
]


@pytest.mark.parametrize(("architecture", "limits", "tokens", "size"), LIMITED)
def test_limits_of_the_user_act_as_in_the_processor(architecture, limits, tokens: int, size: int) -> None:
    image = family_of(architecture).images.limited({"image": limits}).cut(1920, 1080)
    assert (image.prompt_tokens, image.bytes) == (tokens, size)


@pytest.mark.parametrize(
    ("context", "images", "size", "tokens", "total"),
    [
        (1000, 1, (1920, 1080), 945, 5_793_792),
        (None, 3, (1920, 1080), 6128, 37_601_280),
        (None, 3, (4096, 4096), 8120, 49_840_128),
        (131_072, 3, (4096, 4096), 9755, 59_885_568),
    ],
)
def test_images_shrink_to_fit_the_context(context, images, size, tokens, total) -> None:
    text = 1 + images
    image = family_of("NemotronH_Nano_Omni_Reasoning_V3").images.within(context, text).cut(*size, images)
    assert image.prompt_tokens == -(-tokens // images)
    assert image.bytes * images == total
