"""The result of the inspection Job: ``ModelFacts`` <-> ``vlm_api.inspection.InspectedModel``."""

from dataclasses import fields
from typing import Any

from vlm_api.inspection import InspectedModel
from vlm_operator.facts.types import ModelFacts

# Fields with the same name in both types.
_SAME = [f.name for f in fields(ModelFacts) if f.name not in ("parameters", "bytes_per_parameter", "evidence")]


def to_api(facts: ModelFacts) -> InspectedModel:
    """Converts to whole numbers only, so that the API server returns exactly the text that it received."""
    stated: dict[str, Any] = {name: getattr(facts, name) for name in _SAME}
    parameters = None if facts.parameters is None else round(facts.parameters)
    return InspectedModel(**stated, parameters=parameters, bits_per_parameter=round(facts.bytes_per_parameter * 8))


def from_api(read: InspectedModel, uri: str) -> ModelFacts:
    """The facts about the model at ``uri``, with their source in ``evidence``."""
    stated: dict[str, Any] = {name: getattr(read, name) for name in _SAME}
    return ModelFacts(
        **stated,
        parameters=read.parameters,
        bytes_per_parameter=(read.bits_per_parameter or 16) / 8,
        evidence=f"config.json of {uri}, read in the cluster",
    )
