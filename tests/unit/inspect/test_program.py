"""The inspecting Job's program: a model in a claim, and its last words."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from unit.inspect.hub_stand_in import Answer, hub_stand_in

from vlm_api.inspection import Inspection
from vlm_operator.inspect.__main__ import main

# The kubelet cuts a termination message here.
MESSAGE_BYTES = 4096
CONFIG = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "text_config": {"dtype": "bfloat16", "num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128},
}
WEIGHTS = struct.pack("<Q", 100) + b" " * 100 + b"w" * 4096


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    """A claim with a model at /org/model, and beside it what belongs to others."""
    root = tmp_path / "claim"
    model = root / "org" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(WEIGHTS)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config.json").write_text('{"architectures": ["Secret"]}')
    return root


def run(uri: str, root: Path, *more: str) -> Inspection:
    output = root.parent / "termination-log"
    code = main([uri, "--root", str(root), "--output", str(output), *more])
    result = Inspection.model_validate_json(output.read_text())
    assert len(output.read_bytes()) <= MESSAGE_BYTES
    assert code == (0 if result.facts else 1)
    return result


def test_a_model_in_a_claim_is_read(claim: Path):
    facts = run("pvc://models/org/model", claim).facts
    assert (facts.architecture, facts.layers, facts.parameters) == ("Qwen3VLForConditionalGeneration", 36, 2048)


def test_a_model_at_the_top_of_a_claim_is_read(claim: Path):
    assert run("pvc://models", claim / "org" / "model").facts is not None


def test_the_index_counts_where_there_are_several_files(claim: Path):
    (claim / "org/model/model.safetensors.index.json").write_text('{"metadata": {"total_size": 16000.0}}')
    facts = run("pvc://models/org/model/", claim).facts
    assert facts.parameters == 8000


def test_links_inside_the_claim_are_followed_as_the_hub_s_cache_has_them(claim: Path):
    config = claim / "org/model/config.json"
    blob = claim / "blobs" / "abc"
    blob.parent.mkdir()
    config.rename(blob)
    config.symlink_to("../../blobs/abc")
    assert run("pvc://models/org/model", claim).facts is not None


@pytest.mark.parametrize("path", ["../outside", "org/../../outside", "/../outside/", "org/model/../../../outside"])
def test_a_path_out_of_the_claim_is_refused(claim: Path, path: str):
    failure = run(f"pvc://models/{path}", claim).failure
    assert failure.reason == "ModelNotFound"
    assert "spec.model.uri" in failure.message


@pytest.mark.parametrize("target", ["../../../outside/config.json", "/etc/hostname", "config.json"])
def test_a_link_out_of_the_claim_or_to_itself_is_not_followed(claim: Path, target: str):
    config = claim / "org/model/config.json"
    config.unlink()
    config.symlink_to(target)
    failure = run("pvc://models/org/model", claim).failure
    assert failure.reason in ("ModelNotFound", "ModelUnreadable")


def test_a_pipe_instead_of_a_file_is_not_waited_for(claim: Path):
    config = claim / "org/model/config.json"
    config.unlink()
    os.mkfifo(config)
    failure = run("pvc://models/org/model", claim).failure
    assert failure.reason == "ModelNotFound"


def test_a_folder_that_is_not_there_is_named(claim: Path):
    failure = run("pvc://models/org/other", claim).failure
    assert (failure.reason, "org/other" in failure.message) == ("ModelNotFound", True)


@pytest.mark.parametrize("text", ["", "{", "[]", "x" * (2 << 20)], ids=["empty", "half", "a list", "huge"])
def test_a_broken_config_json_is_unreadable(claim: Path, text: str):
    (claim / "org/model/config.json").write_text(text)
    failure = run("pvc://models/org/model", claim).failure
    assert failure.reason == "ModelUnreadable"


def test_the_longest_names_fit_into_the_last_words(claim: Path):
    config = {**CONFIG, "architectures": ["A" * 128], "model_type": "x" * 100_000}
    (claim / "org/model/config.json").write_text(json.dumps(config))
    assert run("pvc://models/org/model", claim).facts is not None
    assert run(f"pvc://models/{'x' * 1000}", claim).failure is not None


def test_as_a_program_it_reads_the_hub_that_the_environment_names_and_never_says_the_token(tmp_path: Path):
    with hub_stand_in() as hub:
        hub.says("config.json", Answer(json.dumps(CONFIG).encode()), revision="v1")
        hub.says("config.json", Answer(status=401))
        environment = {**os.environ, "HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_secret", "NO_PROXY": "127.0.0.1"}
        command = [sys.executable, "-m", "vlm_operator.inspect", "hf://org/model", "--output", str(tmp_path / "result")]
        good = subprocess.run(
            [*command, "--revision", "v1"], env=environment, capture_output=True, text=True, timeout=60
        )
        assert (good.returncode, Inspection.model_validate_json((tmp_path / "result").read_text()).failure) == (0, None)
        bad = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    result = Inspection.model_validate_json((tmp_path / "result").read_text())
    assert (bad.returncode, result.failure.reason) == (1, "ModelAccessDenied")
    assert "hf_secret" not in good.stdout + good.stderr + bad.stdout + bad.stderr + (tmp_path / "result").read_text()


def test_it_loads_no_client_of_kubernetes_and_nothing_else_that_is_large():
    code = "import sys, vlm_operator.inspect.__main__; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.split()
    assert "pydantic" in loaded
    assert not {"kubernetes", "kopf", "yaml", "rich", "prometheus_client", "requests"} & set(loaded)


def test_numbers_of_the_image_processor_are_read_from_either_file(claim: Path):
    assert run("pvc://models/org/model", claim).facts.image_processor is None
    own = {
        "patch_size": 16,
        "image_mean": [0.5],
        "do_resize": True,
        "size": {"shortest_edge": 65536, "longest_edge": 2**20},
    }
    read = {"patch_size": 16, "size.shortest_edge": 65536, "size.longest_edge": 2**20}
    (claim / "org/model/processor_config.json").write_text(json.dumps({"image_processor": own, "image_token": "x"}))
    assert run("pvc://models/org/model", claim).facts.image_processor == read
    (claim / "org/model/preprocessor_config.json").write_text(json.dumps({**own, "patch_size": 14}))
    assert run("pvc://models/org/model", claim).facts.image_processor == {**read, "patch_size": 14}
    (claim / "org/model/preprocessor_config.json").write_text("[")
    assert run("pvc://models/org/model", claim).facts.image_processor == read


def test_a_hostile_image_processor_does_not_crowd_out_the_result(claim: Path):
    numbers = {f"{'k' * 30}{n}": 2**40 for n in range(10_000)} | {
        "x" * 100: 1,
        "big": 2**41,
        "flag": True,
        "none": None,
    }
    (claim / "org/model/preprocessor_config.json").write_text(json.dumps(numbers | {"size": {"a": {"b": 1}}}))
    facts = run("pvc://models/org/model", claim).facts
    assert facts.layers == 36
    assert len(facts.image_processor) == 24
