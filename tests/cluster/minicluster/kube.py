"""Talking to the API server through kubectl."""

import json
from pathlib import Path
from typing import Any

from .paths import KUBECONFIG, tool
from .shell import Argument, attempt, run

Manifest = dict[str, Any]


def kubectl(*arguments: Argument, stdin: str | None = None, kubeconfig: Path = KUBECONFIG) -> str:
    return run([tool("kubectl"), f"--kubeconfig={kubeconfig}", *arguments], stdin=stdin)


def succeeds(*arguments: Argument, kubeconfig: Path = KUBECONFIG) -> bool:
    command = [tool("kubectl"), f"--kubeconfig={kubeconfig}", "--request-timeout=5s", *arguments]
    return attempt(command).returncode == 0


def apply(manifests: list[Manifest]) -> None:
    """Server-side apply, as the cluster's own set-up: what others changed in these objects meanwhile is overruled."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=vlm-cluster", "-f", "-", stdin=listed)


def documents(stream: str) -> list[Manifest]:
    """The objects of `kubectl -o json` given several files or documents: JSON texts one after the other."""
    decoder = json.JSONDecoder()
    found: list[Manifest] = []
    position = 0
    while position < len(stream.rstrip()):
        while stream[position].isspace():
            position += 1
        document, position = decoder.raw_decode(stream, position)
        found += document["items"] if document["kind"] == "List" else [document]
    return found
