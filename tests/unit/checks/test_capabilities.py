"""What a GPU does not run is refused before a pod starts, and nothing that is refused is advised."""

from dataclasses import replace

import pytest
from unit.plan.builders import RUNTIME_IMAGE, cluster, findings_of, node, plan, request_of, service

from vlm_operator.facts.types import ModelFacts
from vlm_operator.plan.make import make_plan

GPUS = {
    "t4": ("Tesla-T4", 15_360, "7.5"),
    "a100": ("NVIDIA-A100-SXM4-80GB", 81_920, "8.0"),
    "l40s": ("NVIDIA-L40S", 46_068, "8.9"),
    "h100": ("NVIDIA-H100-80GB-HBM3", 81_559, "9.0"),
    "b200": ("NVIDIA-B200", 183_359, "10.0"),
    "rtx-pro": ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97_887, "12.0"),
}
MODEL = {"uri": "hf://Qwen/Qwen3-VL-4B-Instruct"}


def on(gpu, *, model=MODEL, **engine):
    return plan(service(model=model, engine=engine), node(gpu, *GPUS[gpu]))


@pytest.mark.parametrize(
    ("gpu", "method", "least"),
    [
        ("t4", "fp8", "8.0"),
        ("a100", "w8a8_fp8", "8.9"),
        ("h100", "mxfp8", "10.0"),
        ("h100", "nvfp4_online", "10.0"),
        ("a100", "fp8", None),
        ("l40s", "w8a8_fp8", None),
        ("b200", "mxfp8", None),
    ],
)
def test_a_quantization_method_is_held_to_its_least_capability(gpu, method, least):
    found = findings_of("GpuLacksQuantization", on(gpu, settings={"quantization": method}))
    if least is None:
        assert not found
        return
    assert found[0].severity == "Error"
    assert found[0].path == "spec.engine.settings.quantization"
    assert f"{method} needs compute capability {least} or newer" in found[0].message
    assert f"have {GPUS[gpu][2]}" in found[0].message


@pytest.mark.parametrize(
    ("gpu", "name", "backend", "majors"),
    [
        ("b200", "attention_backend", "fa3", "8.x and 9.x"),
        ("rtx-pro", "prefill_attention_backend", "fa3", "8.x and 9.x"),
        ("l40s", "attention_backend", "trtllm_mha", "9.x, 10.x and 12.x"),
        ("l40s", "decode_attention_backend", "trtllm_mha", "9.x, 10.x and 12.x"),
        ("b200", "mm_attention_backend", "fa3", "8.x and 9.x"),
        ("t4", "mm_attention_backend", "fa3", "8.x and 9.x"),
        ("a100", "attention_backend", "fa3", None),
        ("h100", "attention_backend", "trtllm_mha", None),
        ("b200", "attention_backend", "trtllm_mha", None),
        ("rtx-pro", "attention_backend", "trtllm_mha", None),
        ("h100", "mm_attention_backend", "fa3", None),
        ("t4", "attention_backend", "triton", None),
    ],
)
def test_an_attention_backend_is_held_to_its_set_of_capabilities(gpu, name, backend, majors):
    found = findings_of("GpuLacksAttention", on(gpu, settings={name: backend}))
    if majors is None:
        assert not found
        return
    assert found[0].severity == "Error"
    assert f"{name} {backend} runs on compute capability {majors} only" in found[0].message


def test_a_backend_is_refused_for_the_phases_in_which_it_is_used():
    settings = {"attention_backend": "trtllm_mha", "decode_attention_backend": "flashinfer"}
    assert findings_of("GpuLacksAttention", on("l40s", settings=settings))
    both = settings | {"prefill_attention_backend": "triton"}
    assert not findings_of("GpuLacksAttention", on("l40s", settings=both))


def test_an_older_release_is_held_to_its_own_facts():
    assert findings_of("GpuLacksAttention", on("h100", version="0.5.9", settings={"attention_backend": "trtllm_mha"}))


def test_what_an_unknown_release_may_refuse_is_a_warning():
    (found,) = findings_of(
        "GpuLacksAttention", on("b200", image="example.com/own:1", settings={"attention_backend": "fa3"})
    )
    assert found.severity == "Warning"


def test_flash_attention_3_runs_latent_attention_on_hopper_only():
    latent = ModelFacts(architecture="KimiVLForConditionalGeneration", latent=True)
    request = request_of(service(engine={"settings": {"attention_backend": "fa3"}}, model={"uri": "pvc://m/k"}))
    for gpu, refused in (("a100", True), ("h100", False)):
        made = make_plan(request, cluster(node(gpu, *GPUS[gpu])), runtime_image=RUNTIME_IMAGE, inspected=latent)
        assert bool(findings_of("GpuLacksAttention", made)) is refused


@pytest.mark.parametrize(("gpu", "refused"), [("a100", True), ("l40s", False), ("h100", False)])
def test_mixtures_of_experts_in_fp8_are_refused_where_triton_has_none(gpu, refused):
    moe = on(gpu, model={"uri": "hf://Qwen/Qwen3-VL-30B-A3B-Instruct-FP8"})
    found = findings_of("GpuLacksQuantization", moe)
    assert bool(found) is refused
    assert not found or ("8.9" in found[0].message and found[0].path == "spec.model.uri")
    assert not findings_of("GpuLacksQuantization", on(gpu, model={"uri": "hf://Qwen/Qwen3-VL-8B-Instruct-FP8"}))


def test_a_checkpoint_is_refused_only_if_no_method_of_the_engine_reads_it_there():
    files = ModelFacts(architecture="Qwen2_5_VLForConditionalGeneration", quantization="awq")
    request = request_of(service(model={"uri": "pvc://m/awq"}))
    for method, refused in (("awq", False), ("gptq", True), ("modelopt_fp8", True), ("compressed-tensors", False)):
        facts = replace(files, quantization=method)
        made = make_plan(request, cluster(node("t4", *GPUS["t4"])), runtime_image=RUNTIME_IMAGE, inspected=facts)
        assert bool(findings_of("GpuLacksQuantization", made)) is refused, method


def test_no_advice_names_what_would_be_refused():
    big = {"uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct"}
    for gpu, said in (("a100", False), ("h100", True)):
        (finding,) = findings_of("ModelDoesNotFit", on(gpu, model=big))
        assert ("fp8" in finding.message) is said
    (finding,) = findings_of("ModelDoesNotFit", on("t4", model={"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}))
    assert "fp8" not in finding.message


def test_gpus_that_run_the_service_are_chosen_before_those_that_do_not():
    spec = service(model={"uri": "hf://Qwen/Qwen3-VL-30B-A3B-Instruct-FP8"})
    made = plan(spec, node("a", *GPUS["a100"]), node("l", *GPUS["l40s"]))
    assert made.hardware.product == "NVIDIA-L40S"
    assert not findings_of("GpuLacksQuantization", made)
