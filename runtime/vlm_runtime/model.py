"""Says of the model's place what the engine's libraries do not: they take a folder that is not there for a hub's name."""

from __future__ import annotations

from pathlib import Path

from vlm_api.plan import ServingPlan
from vlm_runtime.command import option


def about_model(plan: ServingPlan) -> str:
    """One sentence that begins with the model's path or name; empty where the plan names none."""
    model = option(plan.engine.args, "--model-path") or option(plan.engine.args, "--model")
    if not model:
        return ""
    if not model.startswith(("/", "./", "../")):
        revision = option(plan.engine.args, "--revision")
        return f"{model}{f' (revision {revision})' if revision else ''} could not be had from the hub."
    return f"{model} {_state(Path(model))}."


def _state(folder: Path) -> str:
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return "does not exist in the pod"
    except NotADirectoryError:
        return "is no folder"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not names:
        return "is an empty folder"
    if "config.json" not in names:
        return "has no config.json"
    return "is there, but is not complete or cannot be read"
