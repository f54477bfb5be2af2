"""``kubectl vlm history`` and ``kubectl vlm rollback``: earlier specs of a VLMService, and the way back to one."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import yaml
from rich.table import Table
from rich.text import Text

from vlm_api.names import LABEL_PLAN, LABEL_SERVICE
from vlm_operator.cli.cluster import Connection, asking, connect
from vlm_operator.cli.console import make_console
from vlm_operator.cli.errors import ClusterError, InvalidInputs
from vlm_operator.documents import Document
from vlm_operator.kube import kinds
from vlm_operator.kube.ownership import is_owned
from vlm_operator.kube.revisions import CHANGE_CAUSE, SPEC, number, patch_to, spec_of_pods


def history(options: argparse.Namespace) -> int:
    """All revisions, the oldest first; with ``--revision`` the spec of that one."""
    connection = connect(options)
    service = connection.service(options.name)
    found = revisions(connection, service)
    console = make_console()
    if options.revision is not None:
        console.print(Text(_yaml(_spec(_numbered(found, options.revision, options.name))), end=""))
        return 0
    table = Table("REVISION", "PLAN", "AGE", "CHANGE-CAUSE", box=None, pad_edge=False)
    for one in found:
        metadata = one["metadata"]
        table.add_row(
            f"{number(one)}{'  (now)' if _spec(one) == spec_of_pods(service['spec']) else ''}",
            str(metadata["labels"].get(LABEL_PLAN) or ""),
            _age(str(metadata["creationTimestamp"])),
            str((metadata.get("annotations") or {}).get(CHANGE_CAUSE) or ""),
        )
    console.print(table)
    return 0


def rollback(options: argparse.Namespace) -> int:
    """Puts an earlier spec back, the one before unless ``--to-revision`` says which; replicas and the like stay."""
    connection = connect(options)
    service = connection.service(options.name)
    found = revisions(connection, service)
    now = spec_of_pods(service["spec"])
    earlier = [r for r in found if _spec(r) != now]
    if options.to_revision:
        target = _numbered(found, options.to_revision, options.name)
    elif earlier:
        # A spec that was refused never became a revision: then the newest of all is the last that pods were made from.
        target = earlier[-1]
    else:
        raise ClusterError(f"there is no earlier revision of {options.name}: `kubectl vlm history {options.name}`")
    wanted = _spec(target)
    console = make_console()
    if wanted == now:
        console.print(f"{options.name} is at revision {number(target)} already: nothing changes")
        return 0
    for line in difflib.unified_diff(
        _yaml(now).splitlines(), _yaml(wanted).splitlines(), "now", f"revision {number(target)}", lineterm=""
    ):
        console.print(Text(line, style={"+": "green", "-": "red"}.get(line[0], "")))
    if options.dry_run:
        console.print("nothing was changed (dry run)")
        return 0
    patch = patch_to(service["spec"], wanted)
    # Somebody who changes the service at this moment is not overruled unseen.
    patch["metadata"] = {"resourceVersion": service["metadata"]["resourceVersion"]}
    with asking():
        connection.client.merge(kinds.VLM_SERVICE, connection.namespace, options.name, patch, manager="kubectl-vlm")
    console.print(f"{options.name} rolled back to revision {number(target)}: `kubectl vlm status {options.name}`")
    return 0


def revisions(connection: Connection, service: Document) -> list[Document]:
    """The ControllerRevisions of a service, the oldest first. Raises ClusterError."""
    metadata = service["metadata"]
    with asking():
        found = connection.client.list(
            kinds.REVISION, connection.namespace, labels=f"{LABEL_SERVICE}={metadata['name']}"
        )
    return sorted((r for r in found if is_owned(r, metadata["uid"])), key=number)


def _numbered(found: list[Document], wanted: int, name: str) -> Document:
    one = next((r for r in found if number(r) == wanted), None)
    if one is None:
        there = ", ".join(str(number(r)) for r in found) or "none"
        raise InvalidInputs([f"there is no revision {wanted} of {name}: there are {there}"])
    return one


def _spec(one: Mapping[str, Any]) -> dict[str, Any]:
    return dict((one.get("data") or {}).get(SPEC) or {})


def _yaml(spec: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump({SPEC: dict(spec)}, sort_keys=True, allow_unicode=True))


def _age(stamp: str) -> str:
    seconds = (datetime.now(timezone.utc) - datetime.fromisoformat(stamp.replace("Z", "+00:00"))).total_seconds()
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"
