"""``python3 -m vlm_operator.inspect URI``: reads a model's config.json and writes what it says as the last words.

Environment: HF_ENDPOINT and HF_TOKEN, as the engine reads them. Exit codes: 0 facts, 1 a failure; either is one JSON
object (``vlm_api.model.Inspection``) in the termination message.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vlm_api.model import Inspection
from vlm_api.names import ENV_HF_TOKEN, MODEL_MOUNT, TERMINATION_LOG
from vlm_api.report import Failure
from vlm_operator.facts.config import facts_of_config
from vlm_operator.facts.inspected import to_api
from vlm_operator.inspect.errors import Unread
from vlm_operator.inspect.files import parse_config
from vlm_operator.inspect.folder import Folder
from vlm_operator.inspect.hub import ENDPOINT, Hub


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads, writes the answer, and says it on standard output too."""
    parser = argparse.ArgumentParser(prog="python3 -m vlm_operator.inspect", description=__doc__)
    parser.add_argument("uri", help="hf://ORG/NAME, hf://NAME, or pvc://CLAIM/PATH with the claim mounted")
    parser.add_argument("--revision", help="of a hub model")
    parser.add_argument("--root", default=MODEL_MOUNT, help="where the claim is mounted (default: %(default)s)")
    parser.add_argument("--output", default=TERMINATION_LOG, help="where the answer goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        said = inspect(chosen.uri, chosen.revision, Path(chosen.root), os.environ)
    except Unread as error:
        said = Inspection(failure=Failure(reason=error.reason, message=error.message[:2048]))
    text = said.model_dump_json(by_alias=True, exclude_none=True)
    Path(chosen.output).write_text(text, encoding="utf-8")
    print(text)
    return 0 if said.failure is None else 1


def inspect(uri: str, revision: str | None, root: Path, environment: Mapping[str, str]) -> Inspection:
    """What the files of a model say. Raises Unread where they cannot be read."""
    scheme, _, rest = uri.partition("://")
    source: Hub | Folder
    if scheme == "hf":
        endpoint = environment.get("HF_ENDPOINT") or ENDPOINT
        source = Hub(rest, revision, endpoint=endpoint, token=environment.get(ENV_HF_TOKEN))
    elif scheme == "pvc":
        source = Folder(root, rest.partition("/")[2])
    else:
        raise Unread("ModelUnreadable", f"files behind {scheme}:// cannot be read before the model is served")
    config = parse_config(source.config())
    return Inspection(facts=to_api(facts_of_config(config, source.weights_bytes())))


if __name__ == "__main__":
    sys.exit(main())
