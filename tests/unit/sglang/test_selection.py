"""Which SGLang version a service gets, and what is said about it."""

import pytest

from vlm_api.plan import Severity
from vlm_api.spec import Engine
from vlm_operator.sglang.catalogue.engine_image import select_engine
from vlm_operator.sglang.catalogue.releases import newest, versions

DIGEST = "@sha256:" + "0" * 64


def select(**engine):
    return select_engine(Engine.model_validate(engine))


@pytest.mark.parametrize(
    ("engine", "version", "image"),
    [
        ({}, newest(), f"lmsysorg/sglang:v{newest()}"),
        ({"version": "0.5.19"}, "0.5.19", "lmsysorg/sglang:v0.5.19"),
        ({"version": "v0.5.12.post1"}, "0.5.12.post1", "lmsysorg/sglang:v0.5.12.post1"),
        ({"image": f"lmsysorg/sglang:v{newest()}-cu130"}, newest(), f"lmsysorg/sglang:v{newest()}-cu130"),
        ({"image": "registry:5000/sglang:0.5.20"}, "0.5.20", "registry:5000/sglang:0.5.20"),
        ({"image": f"sglang:v0.5.20{DIGEST}"}, "0.5.20", f"sglang:v0.5.20{DIGEST}"),
        ({"image": f"team/sglang{DIGEST}", "version": newest()}, newest(), f"team/sglang{DIGEST}"),
    ],
)
def test_the_version_is_what_the_user_says_or_the_tag_or_the_newest(engine, version, image):
    chosen, chosen_image, findings = select(**engine)
    assert (chosen.version, chosen_image, findings) == (version, image, ())


@pytest.mark.parametrize(
    "engine",
    [
        {"image": f"team/sglang{DIGEST}"},
        {"image": "registry:5000/sglang"},
        {"image": "sglang:latest"},
        {"image": "sglang:nightly-20260101"},
        {"image": "sglang:v0.5.19.post9-ours"},
        {"version": "0.5.99"},
        {"version": "0.4.0"},
    ],
)
def test_an_unknown_version_gets_only_what_every_version_knows(engine):
    chosen, _, findings = select(**engine)
    assert chosen.version is None
    assert chosen.flag("max_running_requests") == "--max-running-requests"
    assert chosen.has_variable("SGLANG_VLM_CACHE_SIZE_MB")
    assert chosen.flag("mm_feature_transport") is None
    assert chosen.flag("cuda_graph_max_bs_decode") is None
    assert not chosen.has_variable("SGLANG_EXPOSE_OWN_ENV_VARS")
    assert (chosen.has_override_set, chosen.has_plugins) == (False, False)
    assert [finding.severity for finding in findings] == [Severity.WARNING]
    assert "version" in findings[0].message


def test_a_version_that_is_not_known_is_told_which_are():
    _, image, findings = select(version="0.5.99")
    assert image == "lmsysorg/sglang:v0.5.99"
    assert "0.5.99" in findings[0].message
    assert f"{newest()}, {versions()[-2]}" in findings[0].message
    assert findings[0].path == "spec.engine.version"


def test_a_tag_that_contradicts_the_version_is_pointed_out():
    chosen, _, findings = select(version=newest(), image="sglang:v0.5.19")
    assert chosen.version == newest()
    assert "0.5.19" in findings[0].message


def test_a_build_of_a_version_is_the_image_s_suffix():
    chosen, image, findings = select_engine(Engine(version="0.5.19+cu129"))
    assert (chosen.version, image, findings) == ("0.5.19", "lmsysorg/sglang:v0.5.19-cu129", ())
