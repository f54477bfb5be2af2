"""Families of the user's own: read when the operator starts, checked, and put beside those that are shipped."""

import copy
import logging
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.plan.builders import RUNTIME_IMAGE, a100, cluster, request_of, service

from vlm_operator.errors import InvalidInput
from vlm_operator.plan.make import make_plan
from vlm_operator.sglang import profiles
from vlm_operator.sglang.profiles import family_of, shipped
from vlm_operator.sglang.profiles.load import families
from vlm_operator.sglang.profiles.needs import NAMES

IMAGES = {
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 3136,
    "max_pixels": 12_845_056,
    "evidence": "preprocessor_config.json of the model",
}
SETTING = {"name": "prefill_decode_interval", "rule": "interval", "value": 7, "reason": "measured to be best"}
PROFILE = {
    "name": "qwen2_5_vl.ampere",
    "title": "Qwen2.5-VL on A100",
    "evidence": "our bench of 2026-01-01, 8 x A100",
    "when": {"compute_capability": ["8.0"], "min_memory_mib": 40_000, "sharing": ["none"]},
    "settings": [SETTING],
}
OURS = {
    "family": "qwen2_5_vl",
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "images": IMAGES,
    "profiles": [PROFILE],
}
OTHER = {**OURS, "family": "ours", "architectures": ["OursForConditionalGeneration"]}


def write(folder: Path, **files: Any) -> str:
    for name, content in files.items():
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (folder / f"{name}.yaml").write_text(text)
    return str(folder)


def refusal(folder: Path, **files: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        families(write(folder, **files))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_folder_there_is_what_is_shipped():
    assert families("") == families(None) == shipped()


def test_what_is_shipped_would_be_taken_from_a_folder_too():
    with resources.as_file(resources.files(profiles)) as folder:
        assert families(str(folder)) == shipped()


def test_another_family_stands_beside_the_shipped_ones(tmp_path: Path):
    found = families(write(tmp_path, ours=OTHER))
    assert [f.family for f in found] == [*(f.family for f in shipped()), "ours"]
    assert family_of("OursForConditionalGeneration", found) is found[-1]


def test_a_family_of_the_same_name_replaces_the_shipped_one_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO):
        found = families(write(tmp_path, mine=OURS))
    family = family_of("Qwen2_5_VLForConditionalGeneration", found)
    assert [p.name for p in family.profiles] == ["qwen2_5_vl.ampere"]
    assert len(found) == len(shipped())
    assert "qwen2_5_vl" in caplog.text


def test_what_a_mounted_config_map_has_beside_the_files_is_passed_over(tmp_path: Path):
    data = tmp_path / "..2026_01_01"
    data.mkdir()
    (data / "ours.yaml").write_text(yaml.safe_dump(OTHER))
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "ours.yaml").symlink_to("..data/ours.yaml")
    assert len(families(str(tmp_path))) == len(shipped()) + 1


def test_a_family_whose_images_cannot_be_counted_may_have_measured_settings(tmp_path: Path):
    own = families(write(tmp_path, ours=changed("images", None)))
    spec = service(
        model={"uri": "pvc://models/ours", "architecture": "OursForConditionalGeneration", "parametersBillion": 8}
    )
    made = make_plan(request_of(spec), cluster(a100()), runtime_image=RUNTIME_IMAGE, families=own)
    assert made.setting("prefill_decode_interval").value == 7
    assert (made.memory.image_tokens, made.memory.image_bytes) == (None, None)


def test_numbers_are_read_as_helm_writes_them(tmp_path: Path):
    text = yaml.safe_dump(OTHER).replace("12845056", "1.2845056e+07")
    family = families(write(tmp_path, ours=text))[-1]
    assert family.images.max_pixels == 12_845_056


def test_a_measured_set_of_ones_own_reaches_the_plan(tmp_path: Path):
    own = families(write(tmp_path, mine=OURS))
    spec = service(model={"uri": "hf://Qwen/Qwen2.5-VL-7B-Instruct"})
    plan = make_plan(request_of(spec), cluster(a100()), runtime_image=RUNTIME_IMAGE, families=own)
    setting = plan.setting("prefill_decode_interval")
    assert (setting.value, setting.source.value, setting.rule) == (7, "profile", "qwen2_5_vl.ampere.interval")
    assert setting.evidence == "our bench of 2026-01-01, 8 x A100"
    without = make_plan(request_of(spec), cluster(a100()), runtime_image=RUNTIME_IMAGE).setting(
        "prefill_decode_interval"
    )
    assert without is None or without.value != 7


def changed(path: str, value: Any) -> dict[str, Any]:
    """OTHER with one value replaced; None removes it."""
    result = copy.deepcopy(OTHER)
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    here: Any = result
    for step in way:
        here = here[step]
    if value is None:
        del here[last]
    else:
        here[last] = value
    return result


FIRST = "profiles.0.settings.0"
# name -> (the family, what the one sentence must name)
WRONG: dict[str, tuple[Any, list[str]]] = {
    "no YAML": ("a: [", ["mine.yaml"]),
    "empty": ("", ["mine.yaml"]),
    "two in a file": ("a: 1\n---\nb: 1\n", ["mine.yaml", "2 documents"]),
    "a key twice": ("family: a\nfamily: b\n", ["mine.yaml", "family", "duplicate key"]),
    "a misspelt field": (changed("profils", []), ["profils", "did you mean profiles?"]),
    "a misspelt field below": (changed(f"{FIRST}.vlaue", 1), ["settings[0].vlaue", "did you mean value?"]),
    "no evidence": (changed("profiles.0.evidence", None), ["profiles[0].evidence", "required"]),
    "a patch of no size": (changed("images.patch_size", 0), ["images.patch_size", "at least 1"]),
    "no such algorithm": (
        changed("images.algorithm", "smart_resiz"),
        ["images.algorithm", "did you mean smart_resize?"],
    ),
    "images that are no map": (changed("images", 1), ["images", "map of fields"]),
    "a misspelt number": (changed("images.patchsize", 14), ["images.patchsize", "did you mean patch_size?"]),
    "a limit of no field": (
        changed("images.limits", {"max_pixels": "most"}),
        ["images.limits.max_pixels", "has no field most"],
    ),
    "limits in the wrong order": (changed("images.max_pixels", 1), ["images", "min_pixels"]),
    "a compute capability as a number": (
        changed("profiles.0.when.compute_capability", [9.5]),
        ["when.compute_capability[0]", "quotes"],
    ),
    "no such sharing": (changed("profiles.0.when.sharing", ["shared"]), ["when.sharing[0]", "mig"]),
    "neither value nor computation": (changed(f"{FIRST}.value", None), ["settings[0]", "value or compute"]),
    "a pool without steps": (
        changed(FIRST, {"name": "SGLANG_MM_FEATURE_CACHE_MB", "rule": "pool", "compute": "feature_pool"}),
        ["settings[0]", "steps"],
    ),
    "an unknown condition": (changed(f"{FIRST}.needs", ["one_nod"]), ["needs[0]", "did you mean one_node?"]),
    "a condition without its number": (
        changed(f"{FIRST}.needs", ["running_limit_at_most"]),
        ["needs[0]", "{running_limit_at_most: 512}"],
    ),
    "a number for a condition without": (changed(f"{FIRST}.needs", [{"one_node": 1}]), ["needs[0]", "one_node"]),
    "two conditions in one": (
        changed(f"{FIRST}.needs", [{"one_node": 1, "running_limit_at_most": 1}]),
        ["needs[0]", "one condition"],
    ),
    "a setting that no engine has": (
        changed(f"{FIRST}.name", "prefil_decode_interval"),
        ["settings[0].name", "did you mean prefill_decode_interval?"],
    ),
    "a value of another type": (changed(f"{FIRST}.value", "many"), ["settings[0].value", "whole number"]),
    "a shipped family's architecture": (
        changed("architectures", ["Qwen3VLForConditionalGeneration"]),
        ["Qwen3VLForConditionalGeneration", "qwen3_vl"],
    ),
}


@pytest.mark.parametrize(("family", "named"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_in_one_line_with_file_and_field(tmp_path: Path, family: Any, named: list[str]):
    said = refusal(tmp_path, mine=family)
    assert [word for word in [str(tmp_path), *named] if word not in said] == []


def test_the_same_family_in_two_files_is_refused(tmp_path: Path):
    assert "two files" in refusal(tmp_path, a=OTHER, b=OTHER)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        families(str(tmp_path / "none"))


def test_the_set_that_the_documentation_shows_is_a_valid_one(tmp_path: Path):
    page = (Path(__file__).resolve().parents[3] / "docs" / "tuning.md").read_text()
    (block,) = [b for b in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S) if b.startswith("profiles:")]
    ours = yaml.safe_load(block)["profiles"]
    found = {f.family: f for f in families(write(tmp_path, **ours))}
    assert [p.name for p in found["qwen2_5_vl"].profiles] == ["qwen2_5_vl.a100"]
    conditions = page[page.index("Conditions are") :]
    assert {name for name in NAMES if name in conditions} == NAMES


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("- family: ours\n- family: theirs\n", "is a list, not a family: write one family, a map with family,"),
        ("ours\n", "is a single value, not a family: write one family, a map with family,"),
        ("# nothing\n", "is empty: write one family, a map with family,"),
    ],
)
def test_a_file_that_holds_no_family_is_refused_with_what_a_family_is(tmp_path, content, says):
    assert refusal(tmp_path, ours=content).startswith(f"{tmp_path}/ours.yaml: {says}")
