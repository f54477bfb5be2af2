"""``python3 -m vlm_operator.inspect URI``: reads a model's config.json and writes its facts as termination message.

Environment: HF_ENDPOINT and HF_TOKEN, as the engine reads them. Exit codes: 0 with facts, 1 with a failure. Both
are one JSON object (``vlm_api.inspection.Inspection``).
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vlm_api.inspection import Inspection
from vlm_api.names import ENV_HF_TOKEN, MODEL_MOUNT, TERMINATION_LOG
from vlm_api.report import Failure
from vlm_operator.facts.model.config import facts_of_config
from vlm_operator.facts.model.inspected import to_api
from vlm_operator.inspect.files import ModelReadError, parse_config
from vlm_operator.inspect.folder import Folder
from vlm_operator.inspect.hub import ENDPOINT, Hub


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the result to the termination message and to standard output."""
    parser = argparse.ArgumentParser(prog="python3 -m vlm_operator.inspect", description=__doc__)
    parser.add_argument("uri", help="hf://ORG/NAME, hf://NAME, or pvc://CLAIM/PATH with the claim mounted")
    parser.add_argument("--revision", help="revision of a hub model")
    parser.add_argument("--root", default=MODEL_MOUNT, help="where the claim is mounted (default: %(default)s)")
    parser.add_argument("--output", default=TERMINATION_LOG, help="file for the result (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        result = inspect(chosen.uri, chosen.revision, Path(chosen.root), os.environ)
    except ModelReadError as error:
        result = Inspection(failure=Failure(reason=error.reason, message=error.message[:2048]))
    text = result.model_dump_json(by_alias=True, exclude_none=True)
    Path(chosen.output).write_text(text, encoding="utf-8")
    print(text)
    return 0 if result.failure is None else 1


def inspect(uri: str, revision: str | None, root: Path, environment: Mapping[str, str]) -> Inspection:
    """The facts in a model's files. Raises ModelReadError."""
    scheme, _, rest = uri.partition("://")
    source: Hub | Folder
    if scheme == "hf":
        endpoint = environment.get("HF_ENDPOINT") or ENDPOINT
        source = Hub(rest, revision, endpoint=endpoint, token=environment.get(ENV_HF_TOKEN))
    elif scheme == "pvc":
        source = Folder(root, rest.partition("/")[2])
    else:
        raise ModelReadError(
            "ModelUnreadable",
            f"cannot read {scheme}:// before the model is served: set spec.model.architecture and parametersBillion",
        )
    config = parse_config(source.config())
    facts = facts_of_config(config, source.weights_bytes())
    return Inspection(facts=to_api(replace(facts, image_processor=source.image_processor())))


if __name__ == "__main__":
    sys.exit(main())
