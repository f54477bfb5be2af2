"""``--model-files``: a model's own files in a folder on this machine, read as the inspection Job reads them."""

from dataclasses import replace
from pathlib import Path

from vlm_operator.errors import InvalidInputs
from vlm_operator.facts.model.config import facts_of_config
from vlm_operator.facts.types import ModelFacts
from vlm_operator.inspect.files import CONFIG, MAX_CONFIG_BYTES, ModelReadError, parse_config
from vlm_operator.inspect.folder import Folder


def read_model_files(folder: str) -> ModelFacts:
    """The facts in the folder's config.json, in the image processor's file and in its safetensors index or file.

    Raises InvalidInputs.
    """
    path = Path(folder).resolve()
    try:
        if not (path / CONFIG).is_file():
            raise InvalidInputs([f"--model-files: {folder} has no {CONFIG}: give the folder with the model's files"])
        with (path / CONFIG).open("rb") as opened:
            config = parse_config(opened.read(MAX_CONFIG_BYTES + 1))
    except OSError as error:
        raise InvalidInputs([f"--model-files: cannot read {path / CONFIG}: {error.strerror or error}"]) from error
    except ModelReadError as error:
        raise InvalidInputs([f"--model-files: {error.message}"]) from error
    # From the root, since a hub's cache holds links to files beside the folder.
    source = Folder(Path("/"), str(path))
    facts = facts_of_config(config, source.weights_bytes())
    return replace(facts, image_processor=source.image_processor(), evidence=f"{CONFIG} in {folder}")
