"""What is known of a model before its files are read: what the spec says, then a table of well-known hub ids."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from vlm_api.spec import ModelSpec
from vlm_operator.facts.types import ModelFacts

_HUB: Final = "hf://"
_EVIDENCE: Final = "config.json of {id}, in the operator's table of models"


def model_facts(spec: ModelSpec) -> ModelFacts:
    """The facts about ``spec``'s model. ``architecture`` and ``parametersBillion`` of the spec win over the table; an
    architecture that differs from the table's sets the whole row aside, since the files are then not those known."""
    known = (
        _table().get(spec.uri.removeprefix(_HUB).lower(), ModelFacts()) if spec.uri.startswith(_HUB) else ModelFacts()
    )
    if spec.architecture is not None and spec.architecture != known.architecture:
        known = ModelFacts(architecture=spec.architecture, bytes_per_parameter=known.bytes_per_parameter)
    if spec.parameters_billion is None:
        return known
    return replace(known, parameters=spec.parameters_billion * 1e9)


@cache
def _table() -> dict[str, ModelFacts]:
    rows: list[dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("models.yaml").read_text("utf-8"))
    table: dict[str, ModelFacts] = {}
    for row in rows:
        facts = ModelFacts(
            architecture=row["architecture"],
            parameters=row.get("parameters"),
            layers=row.get("layers"),
            kv_heads=row.get("kvHeads"),
            head_size=row.get("headSize"),
            vision_hidden_size=row.get("visionHiddenSize"),
            embedding_values_per_token=row.get("embeddingValuesPerToken"),
            patch_size=row.get("patchSize"),
        )
        for bytes_each, ids in ((2.0, row["ids"]), (row.get("fp8BytesPerParameter", 1.0), row.get("fp8Ids", ()))):
            for name in ids:
                # The hub takes ids in any case.
                table[name.lower()] = replace(facts, bytes_per_parameter=bytes_each, evidence=_EVIDENCE.format(id=name))
    return table
