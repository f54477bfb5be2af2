"""What is known of a release is told to whoever chooses it."""

from __future__ import annotations

import pytest
from unit.plan.builders import node, plan, reasons, service

from vlm_api.plan import Finding, ServingPlan
from vlm_operator.engines.catalogue import known, versions
from vlm_operator.engines.faults import faults
from vlm_operator.engines.images import driver_cuda, image_cuda
from vlm_operator.errors import InvalidInput


def of(reason: str, made: ServingPlan) -> list[Finding]:
    return [f for f in made.findings if f.reason == reason]


@pytest.mark.parametrize(
    ("image", "cuda"),
    [
        ("lmsysorg/sglang:v0.5.23", (13, 0)),
        ("lmsysorg/sglang:v0.5.11", (13, 0)),
        ("lmsysorg/sglang:v0.5.10.post1", (12, 9)),
        ("lmsysorg/sglang:v0.5.9", (12, 9)),
        ("lmsysorg/sglang:v0.5.23-runtime", (13, 0)),
        ("registry.example.com:5000/mirror/lmsysorg/sglang:v0.5.23", (13, 0)),
        ("lmsysorg/sglang:v0.5.23@sha256:" + "0" * 64, (13, 0)),
        ("lmsysorg/sglang:v0.5.19-cu129", (12, 9)),
        ("lmsysorg/sglang:v0.5.19-cu12", (12, 0)),
        ("lmsysorg/sglang:v0.5.9-cu130-runtime", (13, 0)),
        # Not said, so not known.
        ("lmsysorg/sglang:v0.5.23-rocm700-mi30x", None),
        ("lmsysorg/sglang:v0.5.99", None),
        ("lmsysorg/sglang:v0.5.8", None),
        ("lmsysorg/sglang:latest", None),
        ("lmsysorg/sglang@sha256:" + "0" * 64, None),
        ("example.com/sglang:v0.5.23", None),
        ("registry.example.com:5000/lmsysorg/sglang", None),
    ],
)
def test_an_image_s_cuda_is_known_where_its_tag_or_its_maker_says_so(image, cuda):
    assert image_cuda(image) == cuda


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("580.95.05", (13, 0)),
        ("575.57.08", (12, 0)),
        ("535.104.05", (12, 0)),
        ("470.256.02", (11, 0)),
        ("390.1", None),
        ("", None),
        (None, None),
        ("unknown", None),
        ("5351234567", None),
    ],
)
def test_a_driver_runs_the_cuda_that_nvidia_says(driver, cuda):
    assert driver_cuda(driver) == cuda


OLD_DRIVER = {"nvidia.com/cuda.driver-version.full": "535.104.05"}


def test_the_default_image_is_checked_against_the_driver_as_well():
    (finding,) = of("DriverTooOld", plan(None, node(labels=OLD_DRIVER)))
    assert "the image lmsysorg/sglang:v0.5.23 is built for CUDA 13.0" in finding.message
    assert "driver 535.104.05 runs CUDA 12.0 at most" in finding.message
    assert "such as lmsysorg/sglang:v0.5.19-cu129" in finding.message


@pytest.mark.parametrize("engine", [{"version": "0.5.9"}, {"image": "lmsysorg/sglang:v0.5.19-cu129"}])
def test_an_image_that_the_driver_runs_is_not_complained_of(engine):
    assert not of("DriverTooOld", plan(service(engine=engine), node(labels=OLD_DRIVER)))


def test_a_gpu_that_the_image_has_no_code_for_is_told():
    volta = node("v", "Tesla-V100-SXM2-32GB", 32_768, "7.0")
    (finding,) = of("GpuTooOld", plan(None, volta))
    assert "compute capability 7.0" in finding.message
    assert not of("GpuTooOld", plan(service(engine={"version": "0.5.9"}), volta))
    assert not of("GpuTooOld", plan(None, node("t", "Tesla-T4", 15_109, "7.5")))


def test_a_release_with_a_known_fault_is_told_with_the_next_better_one():
    (finding,) = of("EngineFault", plan(service(engine={"version": "0.5.10.post1"})))
    assert finding.message.startswith("SGLang 0.5.10.post1 runs code that stands in a model's chat template")
    assert "use 0.5.12.post1 or newer" in finding.message
    assert not of("EngineFault", plan(service(engine={"version": "0.5.23"})))


def test_a_fault_is_told_only_where_the_plan_can_run_into_it():
    settings = {"mm_enable_dp_encoder": True}
    spec = {"parallelism": {"tensor": 4}, "engine": {"version": "0.5.16", "settings": settings}}
    (finding,) = of("EngineFault", plan(service(**spec)))
    assert "use 0.5.17 or newer, or remove mm_enable_dp_encoder" in finding.message
    spec["engine"] = {"version": "0.5.16", "settings": settings | {"mm_feature_transport": "cpu"}}
    assert not of("EngineFault", plan(service(**spec)))


def test_a_data_parallel_encoder_is_not_planned_for_a_release_that_ends_with_it():
    spec = {"parallelism": {"tensor": 4}, "workload": {"concurrency": 600, "images": {"width": 1920, "height": 1080}}}
    by_version = {}
    for version in ("0.5.16", "0.5.17"):
        made = plan(service(engine={"version": version}, **spec))
        by_version[version] = next(s for s in made.settings if s.name == "mm_enable_dp_encoder")
    assert by_version["0.5.17"].value is True
    assert not by_version["0.5.16"].applied
    assert "mended in 0.5.17" in by_version["0.5.16"].reason


def test_every_fault_names_a_version_that_is_better():
    order = versions()
    for name, row in known()["faults"].items():
        assert order.index(row["mended"]) == order.index(row["until"]) + 1, name
        assert name in {f.name for f in faults(row["until"])}
        assert name not in {f.name for f in faults(row["mended"])}
        assert row["source"]


def test_several_tokenizer_workers_without_the_guard_are_told():
    settings = {"tokenizer_worker_num": 2}
    (finding,) = of("ControlPathsOpen", plan(service(engine={"version": "0.5.22", "settings": settings})))
    assert "use 0.5.23 or newer" in finding.message
    assert finding.path == "spec.engine.settings.tokenizer_worker_num"
    assert "ControlPathsOpen" not in reasons(plan(service(engine={"version": "0.5.23", "settings": settings})))


def test_several_tokenizer_workers_with_a_key_are_refused():
    spec = {"security": {"apiKeySecretRef": {"name": "k", "key": "api-key"}}}
    with pytest.raises(InvalidInput, match="2 tokenizer workers take no API key"):
        plan(service(engine={"version": "0.5.23", "args": ["--tokenizer-worker-num", "2"]}, **spec))
    assert plan(service(engine={"version": "0.5.23", "args": ["--tokenizer-worker-num", "1"]}, **spec))
