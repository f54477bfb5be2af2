"""Facts that the inspecting Job read, as they travel: ``ModelFacts`` <-> ``vlm_api.model.InspectedModel``."""

from __future__ import annotations

from typing import Any

from vlm_api.model import InspectedModel
from vlm_operator.facts.types import ModelFacts

_SAME = (
    "architecture",
    "layers",
    "attention_heads",
    "kv_heads",
    "head_size",
    "feed_forward_size",
    "experts",
    "expert_size",
    "quantised_block",
    "vision_hidden_size",
    "vision_heads",
    "embedding_values_per_token",
    "patch_size",
)


def to_api(facts: ModelFacts) -> InspectedModel:
    """Whole numbers only, so that the API server gives back the text that it was given."""
    said: dict[str, Any] = {name: getattr(facts, name) for name in _SAME}
    parameters = None if facts.parameters is None else round(facts.parameters)
    return InspectedModel(**said, parameters=parameters, bits_per_parameter=round(facts.bytes_per_parameter * 8))


def from_api(read: InspectedModel, uri: str) -> ModelFacts:
    """The facts of the model at ``uri``, with where they come from."""
    said: dict[str, Any] = {name: getattr(read, name) for name in _SAME}
    return ModelFacts(
        **said,
        parameters=read.parameters,
        bytes_per_parameter=(read.bits_per_parameter or 16) / 8,
        evidence=f"config.json of {uri}, read in the cluster",
    )
