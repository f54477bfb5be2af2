"""The size in a model's name, where nothing else tells it."""

import pytest
from unit.plan.builders import node, plan, reasons, service

from vlm_api.spec import ModelSpec
from vlm_operator.facts.model.lookup import weights_in_name


@pytest.mark.parametrize(
    ("name", "size", "billion_bytes"),
    [
        ("someone/vision-38B", "38B", 76),
        ("someone/vision-72b-ov", "72b".upper(), 144),
        ("someone/vision-1.5b", "1.5B", 3),
        ("someone/Vision2.5-VL-7B-1M", "7B", 14),
        ("someone/vision-30B-A3B-Instruct", "30B", 60),
        ("someone/vision-235B-A22B-FP8", "235B", 235),
        ("someone/vision-32B-Instruct-AWQ", "32B", 16),
        ("someone/vision-32B-GPTQ-Int4", "32B", 16),
        ("someone/vision-24B-Instruct-2503", "24B", 48),
        ("my7B/vision", None, None),
        ("someone/vision-E4B-it", None, None),
        ("someone/vision-A3B", None, None),
        ("someone/vision-8x7B", None, None),
        ("someone/vision-17B-16E-Instruct", None, None),
        ("someone/vision-4.5V", None, None),
        ("someone/vision-256M", None, None),
        ("someone/vision-2506", None, None),
    ],
)
def test_a_name_says_how_many_parameters_and_how_they_are_kept(
    name: str, size: str | None, billion_bytes: float | None
) -> None:
    found = weights_in_name(ModelSpec(uri=f"hf://{name}"))
    assert (found and (found[0], found[1] / 1e9)) == (size and (size, billion_bytes))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"model": {"uri": "hf://someone/vision-38B"}}, True),
        ({"model": {"uri": "pvc://models/vision-38B"}}, True),
        ({"model": {"uri": "hf://someone/vision-38B"}, "parallelism": {"tensor": 2}}, False),
        ({"model": {"uri": "hf://someone/vision-38B-AWQ"}}, False),
        ({"model": {"uri": "hf://someone/vision-38B"}, "engine": {"settings": {"quantization": "fp8"}}}, False),
        ({"model": {"uri": "hf://someone/vision-38B", "parametersBillion": 8}}, False),
    ],
)
def test_weights_that_have_no_room_by_their_name_are_a_warning(spec: dict[str, object], told: bool) -> None:
    made = plan(service(**spec), node(product="NVIDIA-L40S", memory_mib=46_068, capability="8.9"))
    assert ("NameSaysTooLarge" in reasons(made)) is told
    if told:
        assert made.errors == []
