"""What is said of the model's place when the engine could not read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.runtime.harness import make_plan

from vlm_runtime.model import about_model


def said(*args: str) -> str:
    return about_model(make_plan(engine={"args": list(args)}))


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert said("--model-path", f"{tmp_path}/nowhere") == f"{tmp_path}/nowhere does not exist in the pod."


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ([], "is an empty folder"),
        (["model.safetensors"], "has no config.json"),
        (["config.json", "model.safetensors"], "is there, but is not complete or cannot be read"),
    ],
)
def test_a_folder_that_is_there(tmp_path: Path, files: list[str], state: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert said(f"--model-path={tmp_path}") == f"{tmp_path} {state}."


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "model").touch()
    assert said("--model-path", f"{tmp_path}/model") == f"{tmp_path}/model is no folder."


def test_a_name_on_the_hub_with_its_revision() -> None:
    assert (
        said("--model-path", "org/model", "--revision", "v2")
        == "org/model (revision v2) could not be had from the hub."
    )


def test_a_plan_that_names_no_model_says_nothing() -> None:
    assert said() == ""
