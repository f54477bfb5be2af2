"""What is known of a model: what the spec says, a table of well-known hub ids, then what its own files say."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from vlm_api.spec import ModelSpec
from vlm_operator.facts.types import ModelFacts

_HUB: Final = "hf://"
_EVIDENCE: Final = "config.json of {id}, in the operator's table of models"

# Where files can be read before the model is served. What is in an image is there once a node has pulled all of it.
READABLE: Final = (_HUB, "pvc://")
# Only whether files are read goes by it, never a number.
_QUANTISED_NAME: Final = re.compile(
    r"(?i)(?<![a-z])(?:awq|gptq|nvfp4|mxfp4|fp8|fp4|bnb|autoround|int[48]|[48]-?bit|w[48]a(?:8|16)|quant(?:i[sz]ed)?)(?![a-z])"
)
_BF16: Final = 2.0
# SGLang's methods that only read checkpoints -> bytes of a parameter, where the files were not read. A guess on the large
# side: 4 bits with a scale for each group, or 8 bits, and embeddings, norms and the vision encoder in bf16.
QUANTISED_FILES_BYTES: Final = {
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "modelopt_fp4", "w4afp8"), 0.7),
    "modelopt_fp8": 1.2,
}
# What a plan would miss: the family, and the sizes of weights and KV cache.
_NEEDED: Final = ("architecture", "parameters", "layers", "kv_heads", "head_size")


def model_facts(spec: ModelSpec, read: ModelFacts | None = None) -> ModelFacts:
    """The facts about ``spec``'s model.

    ``architecture`` and ``parametersBillion`` of the spec win over the table; an architecture that differs from the
    table's sets the whole row aside, since the files are then not those known. ``read`` is what the model's own files
    say: it fills in what is left.
    """
    known = _known(spec)
    if spec.architecture is not None and spec.architecture != known.architecture:
        known = ModelFacts(architecture=spec.architecture, bytes_per_parameter=known.bytes_per_parameter)
    if read is not None:
        known = _filled(known, read)
    if spec.parameters_billion is None:
        return known
    said = spec.parameters_billion * 1e9
    if read is not None and read.parameters is not None and read.bytes_per_parameter != _BF16:
        # What a quantised checkpoint takes is what its files hold, whatever the number is multiplied with.
        known = replace(known, bytes_per_parameter=read.parameters * read.bytes_per_parameter / said)
    return replace(known, parameters=said)


def as_quantised(model: ModelFacts, quantization: str | None) -> ModelFacts:
    """The facts, where ``quantization`` names a method that only quantised checkpoints have and nothing was read of one."""
    if quantization not in QUANTISED_FILES_BYTES or model.bytes_per_parameter != _BF16:
        return model
    return replace(model, bytes_per_parameter=QUANTISED_FILES_BYTES[quantization])


def known_parameters(spec: ModelSpec, read: ModelFacts | None = None) -> float | None:
    """The number of parameters that the table or the model's own files say; None where neither tells the number itself."""
    known = _known(spec)
    if known.parameters is not None:
        return known.parameters if spec.architecture in (None, known.architecture) else None
    return read.parameters if read is not None and read.bytes_per_parameter == _BF16 else None


def real_architecture(spec: ModelSpec, read: ModelFacts | None = None) -> str | None:
    """The architecture in the model's config.json, as far as it was read or is in the table."""
    return (read.architecture if read is not None else None) or _known(spec).architecture


def worth_reading(spec: ModelSpec, *, quantization: bool = False) -> bool:
    """Whether the model's own files would say what nothing else does, and can be read.

    Who says ``architecture`` and ``parametersBillion`` has said what a plan cannot do without: then nothing is read, unless
    the model's name, or a ``quantization`` that is set, hints at a quantised checkpoint, whose size no number tells.
    """
    hinted = quantization or _QUANTISED_NAME.search(spec.uri) is not None
    if spec.architecture is not None and spec.parameters_billion is not None and not hinted:
        return False
    known = model_facts(spec)
    return spec.uri.startswith(READABLE) and any(getattr(known, name) is None for name in _NEEDED)


def _known(spec: ModelSpec) -> ModelFacts:
    return (
        _table().get(spec.uri.removeprefix(_HUB).lower(), ModelFacts()) if spec.uri.startswith(_HUB) else ModelFacts()
    )


def _filled(known: ModelFacts, read: ModelFacts) -> ModelFacts:
    missing = {f.name: getattr(read, f.name) for f in fields(ModelFacts) if getattr(known, f.name) is None}
    if known.parameters is None:
        missing["bytes_per_parameter"] = read.bytes_per_parameter
    return replace(known, **missing)


@cache
def _table() -> dict[str, ModelFacts]:
    rows: list[dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("models.yaml").read_text("utf-8"))
    table: dict[str, ModelFacts] = {}
    for row in rows:
        facts = ModelFacts(
            architecture=row["architecture"],
            parameters=row.get("parameters"),
            layers=row.get("layers"),
            attention_heads=row.get("attentionHeads"),
            kv_heads=row.get("kvHeads"),
            head_size=row.get("headSize"),
            feed_forward_size=row.get("feedForwardSize"),
            experts=row.get("experts"),
            expert_size=row.get("expertSize"),
            vision_hidden_size=row.get("visionHiddenSize"),
            vision_heads=row.get("visionHeads"),
            embedding_values_per_token=row.get("embeddingValuesPerToken"),
            patch_size=row.get("patchSize"),
        )
        fp8 = (row.get("fp8BytesPerParameter", 1.0), row.get("fp8Block"))
        for (bytes_each, block), ids in (((2.0, None), row["ids"]), (fp8, row.get("fp8Ids", ()))):
            for name in ids:
                # The hub takes ids in any case.
                table[name.lower()] = replace(
                    facts,
                    bytes_per_parameter=bytes_each,
                    quantised_block=block,
                    evidence=_EVIDENCE.format(id=name),
                )
    return table
