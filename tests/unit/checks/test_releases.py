"""What is known of a release is told to whoever chooses it."""

import pytest
from unit.plan.builders import findings_of, node, plan, service

from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.catalogue.engine_image import driver_cuda, image_cuda
from vlm_operator.sglang.catalogue.releases import known, newest, release, versions

LATEST = f"lmsysorg/sglang:v{newest()}"


@pytest.mark.parametrize(
    ("image", "cuda"),
    [
        (LATEST, (13, 0)),
        ("lmsysorg/sglang:v0.5.11", (13, 0)),
        ("lmsysorg/sglang:v0.5.10.post1", (12, 9)),
        ("lmsysorg/sglang:v0.5.9", (12, 9)),
        (f"{LATEST}-runtime", (13, 0)),
        (f"registry.example.com:5000/mirror/{LATEST}", (13, 0)),
        (f"{LATEST}@sha256:" + "0" * 64, (13, 0)),
        ("lmsysorg/sglang:v0.5.19-cu129", (12, 9)),
        ("lmsysorg/sglang:v0.5.19-cu12", (12, 0)),
        ("lmsysorg/sglang:v0.5.9-cu130-runtime", (13, 0)),
        # Not said, so not known.
        (f"{LATEST}-rocm700-mi30x", None),
        ("lmsysorg/sglang:v9.0.0", None),
        ("lmsysorg/sglang:v0.5.8", None),
        ("lmsysorg/sglang:latest", None),
        ("lmsysorg/sglang@sha256:" + "0" * 64, None),
        (f"example.com/sglang:v{newest()}", None),
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
    (finding,) = findings_of("DriverTooOld", plan(None, node(labels=OLD_DRIVER)))
    assert f"image {LATEST} is built for CUDA 13.0" in finding.message
    assert "driver 535.104.05 supports CUDA 12.0" in finding.message
    assert "such as lmsysorg/sglang:v0.5.19-cu129" in finding.message


@pytest.mark.parametrize("engine", [{"version": "0.5.9"}, {"image": "lmsysorg/sglang:v0.5.19-cu129"}])
def test_an_image_that_the_driver_runs_is_not_complained_of(engine):
    assert not findings_of("DriverTooOld", plan(service(engine=engine), node(labels=OLD_DRIVER)))


@pytest.mark.parametrize("engine", [{}, {"version": "0.5.9"}])
def test_a_gpu_that_the_engine_has_no_code_for_is_refused(engine):
    volta = node("v", "Tesla-V100-SXM2-32GB", 32_768, "7.0")
    (finding,) = findings_of("GpuTooOld", plan(service(engine=engine), volta))
    assert finding.severity == "Error"
    assert "compute capability 7.5" in finding.message
    assert "have 7.0" in finding.message
    assert "image for" not in finding.message
    assert not findings_of("GpuTooOld", plan(service(engine=engine), node("t", "Tesla-T4", 15_109, "7.5")))


def test_a_release_with_a_known_fault_is_told_with_the_next_better_one():
    (finding,) = findings_of("EngineFault", plan(service(engine={"version": "0.5.10.post1"})))
    assert finding.message.startswith("SGLang 0.5.10.post1 runs code in a model's chat template")
    assert "use 0.5.11 or newer" in finding.message
    assert not findings_of("EngineFault", plan(service(engine={})))


def test_a_fault_is_told_only_where_the_plan_can_run_into_it():
    settings = {"mm_enable_dp_encoder": True}
    spec = {"parallelism": {"tensor": 4}, "engine": {"version": "0.5.16", "settings": settings}}
    (finding,) = findings_of("EngineFault", plan(service(**spec)))
    assert "use 0.5.17 or newer, or remove mm_enable_dp_encoder" in finding.message
    spec["engine"] = {"version": "0.5.16", "settings": settings | {"mm_feature_transport": "cpu"}}
    assert not findings_of("EngineFault", plan(service(**spec)))


def test_a_data_parallel_encoder_is_not_planned_for_a_release_that_ends_with_it():
    spec = {"parallelism": {"tensor": 4}, "workload": {"concurrency": 600, "images": {"width": 1920, "height": 1080}}}
    by_version = {}
    for version in ("0.5.16", "0.5.17"):
        made = plan(service(engine={"version": version}, **spec))
        by_version[version] = next(s for s in made.settings if s.name == "mm_enable_dp_encoder")
    assert by_version["0.5.17"].value is True
    assert not by_version["0.5.16"].applied
    assert "fixed in 0.5.17" in by_version["0.5.16"].reason


def test_a_fault_is_in_every_release_before_the_one_that_fixes_it():
    for name, row in known()["faults"].items():
        having = [version for version in versions() if release(version).fault(name)]
        assert having == list(versions()[: versions().index(row["fixed_in"])]), name
        assert row["source"]


def test_several_tokenizer_workers_with_a_key_are_refused():
    spec = {"security": {"apiKeySecretRef": {"name": "k", "key": "api-key"}}}
    with pytest.raises(InvalidInput, match="2 tokenizer workers accept no API key"):
        plan(service(engine={"args": ["--tokenizer-worker-num", "2"]}, **spec))
    assert plan(service(engine={"args": ["--tokenizer-worker-num", "1"]}, **spec))
