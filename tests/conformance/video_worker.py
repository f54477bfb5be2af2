"""What SGLang's own processors make of videos: reads requests as JSON from standard input and writes the answers. Runs in the
engine's environment, on the CPU, and downloads nothing.

A family comes as its ``config.json``, the files of its processors and its special tokens. Videos come from a decoder that
returns black frames.
"""

import asyncio
import importlib
import inspect
import json
import logging
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import regex
import sglang.srt.multimodal.processors.base_processor as base
import sglang.srt.multimodal.processors.internvl as internvl
import sglang.srt.multimodal.processors.qwen_vl as qwen_vl
import torch
from sglang.srt.managers.multimodal_processor import PROCESSOR_MAPPING, import_processors
from sglang.srt.runtime_context import get_context
from sglang.srt.utils.hf_transformers_utils import get_config, get_processor
from sglang.srt.utils.video_decoder import VideoDecoderWrapper
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

# How Qwen's tokenizers split text; each piece of a time or a frame's number is one token.
PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Black(VideoDecoderWrapper):
    """A video of black frames."""

    def __init__(self, frames: int, rate: float, width: int, height: int) -> None:
        self.frames, self.rate, self.width, self.height = frames, rate, width, height

    def __len__(self) -> int:
        return self.frames

    @property
    def avg_fps(self) -> float:
        return self.rate

    @property
    def frame_shape(self) -> tuple[int, int]:
        return self.height, self.width

    def __getitem__(self, index: int) -> Any:
        return np.zeros((self.height, self.width, 3), np.uint8)

    def get_frames_at(self, indices: Any) -> Any:
        return np.zeros((len(indices), self.height, self.width, 3), np.uint8)

    def get_frames_as_tensor(self, indices: Any) -> Any:
        return torch.from_numpy(self.get_frames_at(indices))

    def close(self) -> None: ...

    def __del__(self) -> None: ...


def make_tokenizer(folder: Path, family: dict[str, Any]) -> Any:
    """Bytes and the family's special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = family["tokens"]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        extra_special_tokens=family.get("named"),
        pad_token=special[0],
        eos_token=special[0],
        unk_token=family.get("unknown"),
    )
    made.save_pretrained(folder)
    return made


def make_processor(folder: Path, family: dict[str, Any], tokenizer: Any, args: Any) -> Any:
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in family["ids"].items()}
    ids = {family["ids_in"]: ids} if "ids_in" in family else ids
    config = {"architectures": [family["architecture"]], **family["config"], **ids}
    for name, content in {"config.json": config, **family["files"]}.items():
        (folder / name).write_text(json.dumps(content))
    if "config_class" in family:
        module, _, name = family["config_class"].rpartition(".")
        made = object.__new__(getattr(importlib.import_module(module), name))
        for key, value in family["config"].items():
            object.__setattr__(made, key, value)
    else:
        made = get_config(str(folder), trust_remote_code=False)
    kind = next(v for k, v in PROCESSOR_MAPPING.items() if k.__name__ == family["architecture"])
    processor = tokenizer if family.get("bare") else get_processor(str(folder))
    made = kind(made, args, processor, "default", skip_mm_pool=True)
    if "dtype" in family:
        made.__dict__["feature_dtype"] = getattr(torch, family["dtype"])  # read from the weights' config otherwise
    return made


def process(
    processor: Any, tokenizer: Any, placeholder: str, clip: list[int], limits: dict[str, Any]
) -> dict[str, Any]:
    seconds, rate, width, height = clip
    processor.video_config = limits
    base.load_video = lambda *_, **__: Black(seconds * rate, rate, width, height)
    request = types.SimpleNamespace(
        image_data=None, video_data=["data:video/mp4;base64,AAAA"], audio_data=None, modalities=["video"], rid="r",
        mm_hashes=None, images_config=None, video_config=None, use_audio_in_video=False,
    )  # fmt: skip
    end = tokenizer.eos_token  # so that no text before or after runs into that of the video
    prompt = f"{end}{placeholder}{end}"
    made = asyncio.run(
        processor.process_mm_data_async(
            image_data=None,
            audio_data=None,
            input_text=prompt,
            request_obj=request,
            max_req_input_len=10**9,
        )
    )
    special = set(tokenizer.get_added_vocab().values())
    ids = list(made.input_ids)
    runs = "".join("\0" if i in special else chr(0x100 + i) for i in ids).split("\0")
    texts = [tokenizer.decode([ord(c) - 0x100 for c in run]) for run in runs if run]
    pieces = sum(len(regex.findall(PIECES, text)) for text in texts)
    filled = {tuple(offset) for item in made.mm_items for offset in item.offsets}
    return {
        "prompt_tokens": sum(i in special for i in ids) + pieces - 2,
        "tokens": sum(end - start + 1 for start, end in filled),
        "bytes": sum(item.feature.numel() * item.feature.element_size() for item in made.mm_items),
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    answers, sys.stdout = sys.stdout, sys.stderr
    import_processors("sglang.srt.multimodal.processors")
    base._is_cpu = True
    internvl.get_device = lambda: "cpu"
    qwen_vl.is_cpu = lambda: True  # no accelerator here, so no memory is pinned
    request = json.load(sys.stdin)
    made = {name: answers_of(family) for name, family in request["families"].items()}
    json.dump({"made": made, "reads": {name: reads_videos(name) for name in request["architectures"]}}, answers)


def reads_videos(architecture: str) -> bool:
    """Whether the code of an architecture's processor does anything with the videos of a request."""
    kind = next((v for k, v in PROCESSOR_MAPPING.items() if k.__name__ == architecture), object)
    own = [
        each
        for each in kind.__mro__
        if each not in (base.BaseMultimodalProcessor, *base.BaseMultimodalProcessor.__mro__)
    ]
    return any("video_data" in inspect.getsource(each) for each in own)


def answers_of(family: dict[str, Any]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = make_tokenizer(folder, family)
        override = get_context().override_server_args(
            mm_process_config={},
            mm_processor_worker_num=1,
            model_path=name,
            mm_feature_transport="cpu",
            context_length=family.get("context_length"),
        )
        processor = make_processor(folder, family, tokenizer, override.install())
        made = [process(processor, tokenizer, family["placeholder"], *case) for case in family["cases"]]
        override.restore()
    return made


if __name__ == "__main__":
    main()
