"""Facts read from a model's files before it is served: the inspection Job's termination message, kept in the status."""

from typing import Annotated

from pydantic import Field

from vlm_api.base import ApiModel
from vlm_api.report import Failure

_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Key = Annotated[str, Field(max_length=64)]
_Number = Annotated[int, Field(ge=1, le=1 << 40)]
_Values = Annotated[int, Field(ge=1, le=10**12)]


class InspectedModel(ApiModel):
    """Facts from a model's config.json and weight index. Unknown facts are unset."""

    architecture: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9_]+$")] | None = None
    """First entry of ``architectures``."""
    parameters: Annotated[int, Field(ge=1, le=10**15)] | None = None
    """Number of parameters: the bytes of all weights divided by the size of one weight. For quantized models it is an
    equivalent: multiplied by ``bitsPerParameter``, it gives the bytes of all weights."""
    bits_per_parameter: Annotated[int, Field(ge=1, le=64)] | None = None
    """Size of a weight in the engine's memory: 16 for bf16, 8 for fp8."""
    layers: _Count | None = None
    """Number of layers in the language model, if each has a KV cache."""
    kv_layers: _Count | None = None
    """Number of layers with a KV cache, if the others keep a state for each running request."""
    sliding_layers: _Count | None = None
    """Number of those layers whose KV cache is kept in a smaller pool, since they look back over a window."""
    latent_size: _Count | None = None
    """Values per token and layer of a compressed KV cache."""
    state_values: _Values | None = None
    """Values of one request's recurrent states, in all layers together."""
    state_value_bytes: Annotated[int, Field(ge=1, le=8)] | None = None
    """Size of one value of a recurrent state in bytes."""
    convolution_values: _Values | None = None
    """Values of one request's convolution states, in all layers together."""
    attention_heads: _Count | None = None
    """Query heads per layer."""
    kv_heads: _Count | None = None
    """Key and value heads per layer."""
    head_size: _Count | None = None
    """Dimension of one head."""
    feed_forward_size: _Count | None = None
    """Width of a dense feed-forward layer."""
    experts: _Count | None = None
    """Number of experts per layer."""
    expert_size: _Count | None = None
    """Width of one expert."""
    quantization: Annotated[str, Field(max_length=32, pattern=r"^[a-z0-9_-]+$")] | None = None
    """Method by which the weights are quantized, such as fp8 or awq."""
    latent: bool | None = None
    """Whether the attention is latent (MLA), so that the KV cache does not depend on the heads."""
    quantised_group: _Count | None = None
    """Weights in a row that share a scale, in checkpoints that are quantized by groups (AWQ, GPTQ, compressed-tensors)."""
    quantised_block: _Count | None = None
    """Side length, in weights, of the blocks that share a scale in a block-quantized checkpoint."""
    vision_hidden_size: _Count | None = None
    """Width of the vision encoder."""
    vision_heads: _Count | None = None
    """Attention heads of the vision encoder."""
    embedding_values_per_token: _Count | None = None
    """Values per token that the vision encoder passes to the language model."""
    patch_size: _Count | None = None
    """Side length of a vision patch in pixels."""
    image_processor: Annotated[dict[_Key, _Number], Field(max_length=32)] | None = None
    """Whole numbers in the image processor's file (``preprocessor_config.json``), such as ``size.longest_edge``."""
    context_length: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Largest number of tokens in one request, prompt and answer together."""


class Inspection(ApiModel):
    """The result of reading the model's files: facts or a failure."""

    digest: Annotated[str, Field(max_length=64)] = ""
    """Digest of the spec fields that locate the files. They are read again only if it changes."""
    facts: InspectedModel | None = None
    """The facts."""
    failure: Failure | None = None
    """Why the files could not be read. The plan is then made without them."""
