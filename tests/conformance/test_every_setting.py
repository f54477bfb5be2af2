"""Whatever users set, one setting at a time: what the real engine made of it is never called a wish that it ignored.

``OverridesEffective`` holds ``Ready``, so a word that the engine tells otherwise would keep a service that serves from it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.samples import CONFIGS, PROFILED, Sample
from conformance.test_resolution import models, planned, request, resolved

from vlm_api.plan import ServingPlan
from vlm_operator.sglang.catalogue.fields import Field
from vlm_operator.sglang.catalogue.releases import newest, release
from vlm_runtime.sglang.aliases import OLDER_FLAGS
from vlm_runtime.sglang.effective import compare

__all__ = ["models"]

H100 = ("NVIDIA-H100-80GB-HBM3", 81_559, (9, 0))
# Of these every word is tried, of the others one.
ALL_WORDS = ("parser", "quantization", "attention_backend", "kv_cache_dtype", "transfer_backend")
OTHERS: tuple[tuple[str, Any], ...] = (
    ("allowed_media_domains", ["Images.example.com", "a.example.com"]),
    ("cuda_graph_config", {"decode": {"max_bs": 64}}),
    ("cuda_graph_bs_decode", [1, 2, 4, 8]),
    ("limit_mm_data_per_request", {"image": 4}),
    ("mm_process_config", {"image": {"size": {"shortest_edge": 65_536, "longest_edge": 1_048_576}}}),
)
NEXTN = {"speculative_algorithm": "NEXTN", "speculative_draft_model_path": "tiny/draft"}
# What the comparison looks at beside the planned settings themselves.
BESIDE = {"cuda_graph_config", "attn_dp_size", "page_size", *(older.field for older in OLDER_FLAGS.values())}
# What the engine really does otherwise, on one GPU of that kind and with that model.
IGNORED = {
    "enable_dp_attention": "one group of ranks is none",
    "enable_dp_lm_head": "without attention groups there is nothing to share out",
    "load_format": "a remote instance that is not named",
    "moe_a2a_backend": "for another maker's accelerators",
    "moe_runner_backend": "for other models",
    "remote_instance_weight_loader_start_seed_via_transfer_engine": "the library is not there",
    "speculative_adaptive": "without speculative decoding there is nothing to adapt",
}


def values(field: Field) -> list[Any]:
    """Values that are not the default."""
    if field.choices:
        words = [word for word in field.choices if word != field.default]
        return words if any(part in field.name for part in ALL_WORDS) else words[:1]
    if field.kind == "bool":
        return [field.default is not True]
    if field.kind in ("int", "size"):
        return [field.default * 2 if isinstance(field.default, int) and field.default > 0 else 4]
    return [0.5] if field.kind == "float" else []


def written() -> Iterator[dict[str, Any]]:
    """What users write into engine.settings."""
    for field in release(newest()).fields.values():
        yield from ({field.name: value} for value in values(field))
    yield from ({name: value} for name, value in OTHERS)
    yield NEXTN


def service(settings: dict[str, Any]) -> Sample:
    spec = {
        "model": {
            "uri": "hf://tiny/model",
            "architecture": CONFIGS[PROFILED[0]]["architectures"][0],
            "parametersBillion": 1,
        },
        "workload": {"concurrency": 64, "images": {"reuse": "SingleUse", "width": 512, "height": 512}},
        "engine": {"settings": settings},
    }
    return Sample(PROFILED[0], spec, *H100, 1)


@pytest.mark.timeout(600)
def test_no_value_that_is_in_force_is_called_ignored(engine_site: Path, models: dict[str, Path]) -> None:
    plans: list[tuple[dict[str, Any], ServingPlan, dict[str, Any]]] = []
    for settings in written():
        sample = service(settings)
        plan = planned(sample)
        if plan is not None:
            names = {setting.name for setting in plan.settings} | BESIDE
            plans.append((settings, plan, request(sample, plan, models) | {"fields": sorted(names)}))
    answers = list(resolved(engine_site, [asked for _, _, asked in plans]))
    taken = [
        (settings, plan, answer)
        for (settings, plan, _), answer in zip(plans, answers, strict=True)
        if "fields" in answer
    ]
    assert len(taken) >= 500  # the others are for other hardware, other models, or want a second setting
    wrong = []
    for settings, plan, answer in taken:
        variables = {name: value for name, value in answer["env"].items() if value is not None}
        told = compare(plan.settings, answer["fields"] | {"internal_states": [{"env_vars": variables}]}).settings
        assert told
        wrong += [
            f"{settings}: {setting.name} is {setting.effective!r} and not {setting.planned!r}"
            for setting in told
            if not setting.agrees and setting.name not in IGNORED and "path" not in setting.name
        ]
    assert wrong == []
