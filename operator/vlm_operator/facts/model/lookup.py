"""Facts about a model: from the spec, then the table of well-known hub ids, then the model's own files."""

import re
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml
from pydantic.alias_generators import to_camel

from vlm_api.spec import ModelSpec
from vlm_operator.facts.types import ModelFacts

_HUB: Final = "hf://"
_EVIDENCE: Final = "config.json of {id}, in the operator's table of models"

# Sources whose files can be read before the model is served. An image's files are readable only after a node pulled it.
READABLE: Final = (_HUB, "pvc://")
# Decides only whether to read the files, never a number.
_QUANTISED_NAME: Final = re.compile(
    r"(?i)(?<![a-z])(?:awq|gptq|nvfp4|mxfp4|fp8|fp4|bnb|autoround|int[48]|[48]-?bit|w[48]a(?:8|16)|quant(?:i[sz]ed)?)(?![a-z])"
)
_BF16: Final = 2.0
# A number of billions in a name: 38B, 1.5b, the 30B of 30B-A3B. Not the active parameters of A3B, the effective ones of E4B, the
# product 8x7B, or a version.
_BILLIONS: Final = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,2})?)[bB](?![A-Za-z0-9])")
# With experts in the name, as in 17B-16E, the number is that of the active parameters.
_EXPERTS: Final = re.compile(r"(?i)(?<![a-z0-9])\d{1,4}e(?![a-z0-9])")
_FOUR_BITS: Final = re.compile(
    r"(?i)(?<![a-z])(?:awq|gptq|nvfp4|mxfp4|fp4|bnb|autoround|int4|4-?bit|w4a(?:8|16))(?![a-z])"
)
# SGLang's methods that need a quantised checkpoint -> bytes per parameter if its files were not read. A high estimate:
# 4 bits with a scale for each group, or 8 bits, and embeddings, norms and the vision encoder in bf16.
QUANTISED_FILES_BYTES: Final = {
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "modelopt_fp4", "w4afp8"), 0.7),
    "modelopt_fp8": 1.2,
}
# Facts that a plan needs: the family, and the sizes of the weights and the KV cache.
_NEEDED: Final = ("architecture", "parameters", "layers", "kv_heads", "head_size")


def model_facts(spec: ModelSpec, read: ModelFacts | None = None) -> ModelFacts:
    """The facts about ``spec``'s model.

    ``architecture`` and ``parametersBillion`` in the spec override the table. If the architecture differs from the
    table's, the whole row is ignored, since the files are different ones. ``read`` holds the facts from the model's
    own files: it fills in the missing fields.
    """
    known = _known(spec)
    if spec.architecture is not None and spec.architecture != known.architecture:
        known = ModelFacts(architecture=spec.architecture, bytes_per_parameter=known.bytes_per_parameter)
    if read is not None:
        known = _filled(known, read)
    if spec.parameters_billion is None:
        return known
    stated = spec.parameters_billion * 1e9
    if read is not None and read.parameters is not None and read.bytes_per_parameter != _BF16:
        # The size of a quantised checkpoint is the size of its files, whatever number of parameters the spec states.
        known = replace(known, bytes_per_parameter=read.parameters * read.bytes_per_parameter / stated)
    return replace(known, parameters=stated)


def weights_in_name(spec: ModelSpec) -> tuple[str, float] | None:
    """The size in the model's name and the fewest bytes that such weights can have; None without a size.

    A name is no fact: it may only warn. A name that says how its weights are quantised counts them so.
    """
    name = spec.uri.rpartition("//")[2].rpartition("/")[2]
    sizes = _BILLIONS.findall(name)
    if not sizes or _EXPERTS.search(name):
        return None
    largest = max(sizes, key=float)
    each = 0.5 if _FOUR_BITS.search(name) else 1.0 if _QUANTISED_NAME.search(name) else _BF16
    return f"{largest}B", float(largest) * 1e9 * each


def as_quantised(model: ModelFacts, quantization: str | None) -> ModelFacts:
    """The facts with estimated bytes per parameter, if ``quantization`` needs a quantised checkpoint that was not read."""
    if quantization not in QUANTISED_FILES_BYTES or model.bytes_per_parameter != _BF16:
        return model
    return replace(model, bytes_per_parameter=QUANTISED_FILES_BYTES[quantization])


def known_parameters(spec: ModelSpec, read: ModelFacts | None = None) -> float | None:
    """The number of parameters according to the table or the model's own files; None if neither states it."""
    known = _known(spec)
    if known.parameters is not None:
        return known.parameters if spec.architecture in (None, known.architecture) else None
    return read.parameters if read is not None and read.bytes_per_parameter == _BF16 else None


def real_architecture(spec: ModelSpec, read: ModelFacts | None = None) -> str | None:
    """The architecture in the model's config.json, as read or as in the table; None if unknown."""
    return (read.architecture if read is not None else None) or _known(spec).architecture


def worth_reading(spec: ModelSpec, *, quantization: bool = False) -> bool:
    """Whether the model's own files can be read and would provide missing facts.

    If the spec sets both ``architecture`` and ``parametersBillion``, a plan has all it needs and nothing is read, unless the
    model's name or ``quantization`` suggests a quantised checkpoint, whose size does not follow from the parameters.
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


# Columns of models.yaml, which uses camelCase.
_COLUMNS: Final = (
    "architecture", "parameters", "layers", "attention_heads", "kv_heads", "head_size", "feed_forward_size", "experts",
    "expert_size", "vision_hidden_size", "vision_heads", "embedding_values_per_token", "patch_size",
    "context_length",
)  # fmt: skip


@cache
def _table() -> dict[str, ModelFacts]:
    rows: list[dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("models.yaml").read_text("utf-8"))
    table: dict[str, ModelFacts] = {}
    for row in rows:
        columns: dict[str, Any] = {name: row.get(to_camel(name)) for name in _COLUMNS}
        facts = ModelFacts(**columns)
        fp8 = (row.get("fp8BytesPerParameter", 1.0), row.get("fp8Block"))
        for (bytes_each, block), ids in (((2.0, None), row["ids"]), (fp8, row.get("fp8Ids", ()))):
            for name in ids:
                # The hub ignores the case of ids.
                table[name.lower()] = replace(
                    facts,
                    bytes_per_parameter=bytes_each,
                    quantization="fp8" if bytes_each < _BF16 else None,
                    quantised_block=block,
                    evidence=_EVIDENCE.format(id=name),
                )
    return table
