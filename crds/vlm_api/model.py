"""What was read from a model's own files before it is served: the inspecting Job's last words, kept in the status."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vlm_api.base import ApiModel
from vlm_api.report import Failure

_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class InspectedModel(ApiModel):
    """What a model's config.json and the index of its weights say. Left out where they do not say it."""

    architecture: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9_]+$")] | None = None
    """First entry of ``architectures``."""
    parameters: Annotated[int, Field(ge=1, le=10**15)] | None = None
    """Number of parameters: bytes of all weights by the size of one. For a quantised model, whose parts differ in size,
    this is the number that together with ``bitsPerParameter`` gives the bytes of all weights."""
    bits_per_parameter: Annotated[int, Field(ge=1, le=64)] | None = None
    """Size of a weight in the engine's memory: 16 for bf16, 8 for fp8."""
    layers: _Count | None = None
    """Layers of the language model."""
    attention_heads: _Count | None = None
    """Query heads of each layer."""
    kv_heads: _Count | None = None
    """Key and value heads of each layer."""
    head_size: _Count | None = None
    """Values of one head."""
    feed_forward_size: _Count | None = None
    """Width of a dense feed-forward layer."""
    experts: _Count | None = None
    """Experts that tokens are sent to in each layer."""
    expert_size: _Count | None = None
    """Width of one expert."""
    quantised_block: _Count | None = None
    """Weights along one side of a block that shares a scale, in a checkpoint that is quantised by blocks."""
    vision_hidden_size: _Count | None = None
    """Width of the vision encoder."""
    vision_heads: _Count | None = None
    """Attention heads of the vision encoder."""
    embedding_values_per_token: _Count | None = None
    """Values that the vision encoder hands to the language model for one token."""
    patch_size: _Count | None = None
    """Pixels along one side of a vision patch."""


class Inspection(ApiModel):
    """What reading the model's files came to: either facts or a failure."""

    digest: Annotated[str, Field(max_length=64)] = ""
    """Digest of the part of the spec that says where the files are: while it stays, they are not read again."""
    facts: InspectedModel | None = None
    """What the files say."""
    failure: Failure | None = None
    """Why they could not be read; the plan was then made without them."""
