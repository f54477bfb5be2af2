"""What a failure says about the model's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.runtime.harness import make_plan

from vlm_runtime.sglang.failure import describe_model


def said(*args: str) -> str:
    return describe_model(make_plan(engine={"args": list(args)}))


def test_a_missing_path(tmp_path: Path) -> None:
    assert said("--model-path", f"{tmp_path}/nowhere") == f"{tmp_path}/nowhere does not exist in the pod."


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ([], "is an empty folder"),
        (["model.safetensors"], "has no config.json"),
        (["config.json", "model.safetensors"], "exists, but is incomplete or cannot be read"),
    ],
)
def test_an_existing_folder(tmp_path: Path, files: list[str], state: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert said(f"--model-path={tmp_path}") == f"{tmp_path} {state}."


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model").touch()
    assert said("--model-path", f"{tmp_path}/model") == f"{tmp_path}/model is not a folder."


def test_a_name_on_the_hub_with_its_revision() -> None:
    assert (
        said("--model-path", "org/model", "--revision", "v2")
        == "org/model (revision v2) could not be downloaded from the hub."
    )


def test_a_plan_without_a_model() -> None:
    assert said() == ""
