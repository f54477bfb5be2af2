"""Image arithmetic is the real processor's: the sizes, bytes and tokens that Hugging Face's Qwen-VL processor makes."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from vlm_operator.sglang.images.smart_resize import MAX_ASPECT_RATIO
from vlm_operator.sglang.profiles import family_of

SEED = 1000
SIZES = 1000
WHOLE_IMAGES = 40

# Resizes each size as the processor does, and processes the first few images whole, since that takes longer.
PROCESS = """
import json, sys
import torch
from transformers import AutoImageProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
request = json.load(sys.stdin)
processor = AutoImageProcessor.from_pretrained(request["model"])
answers = []
for index, (width, height) in enumerate(request["sizes"]):
    resized = smart_resize(height, width, request["factor"], request["min_pixels"], request["max_pixels"])
    answer = {"size": [resized[1], resized[0]]}
    if index < request["whole"]:
        image = torch.zeros((3, height, width), dtype=torch.uint8)
        made = processor(images=[image], return_tensors="pt", device="cpu")
        values = made["pixel_values"]
        answer["bytes"] = values.numel() * values.element_size()
        answer["tokens"] = int(made["image_grid_thw"].prod()) // processor.merge_size**2
    answers.append(answer)
print(json.dumps(answers))
"""


def sizes(count: int, whole: int) -> list[tuple[int, int]]:
    chance = random.Random(SEED)
    made = []
    while len(made) < count:
        most = 1500 if len(made) < whole else 9000
        width, height = chance.randint(1, most), chance.randint(1, most)
        if max(width, height) / min(width, height) <= MAX_ASPECT_RATIO:
            made.append((width, height))
    return made


@pytest.mark.parametrize(
    ("architecture", "whole"),
    [("Qwen3VLForConditionalGeneration", WHOLE_IMAGES), ("Qwen2_5_VLForConditionalGeneration", 0)],
)
def test_sizes_bytes_and_tokens_are_the_processor_s(architecture, whole, engine_site: Path, tiny_model: Path):
    processing = family_of(architecture).images
    wanted = sizes(SIZES, whole)
    request = {
        "model": str(tiny_model),
        "sizes": wanted,
        "factor": processing.factor,
        "min_pixels": processing.min_pixels,
        "max_pixels": processing.max_pixels,
        "whole": whole,
    }
    done = subprocess.run(
        [sys.executable, "-s", "-c", PROCESS],
        input=json.dumps(request),
        env=os.environ | {"PYTHONPATH": str(engine_site), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for (width, height), answer in zip(wanted, json.loads(done.stdout), strict=True):
        image = processing.cut(width, height)
        ours = {"size": list(image.size), "bytes": image.bytes, "tokens": image.tokens}
        assert {key: ours[key] for key in answer} == answer, f"{width} x {height}"
