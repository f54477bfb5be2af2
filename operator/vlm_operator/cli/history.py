"""``kubectl vlm history`` and ``kubectl vlm rollback``: list and restore earlier specs of a VLMService."""

import argparse
import difflib
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

import yaml
from rich.table import Table
from rich.text import Text

from vlm_api.names import LABEL_PLAN, LABEL_SERVICE
from vlm_operator.cli.cluster import Connection, cluster_errors, connect
from vlm_operator.cli.console import make_console
from vlm_operator.cli.status_table import age
from vlm_operator.documents import Document
from vlm_operator.errors import ClusterError, InvalidInputs
from vlm_operator.kube import kinds
from vlm_operator.kube.ownership import is_owned
from vlm_operator.manifests.revision import CHANGE_CAUSE, SPEC, number, patch_to, spec_of_pods


def history(options: argparse.Namespace) -> int:
    """Lists all revisions, oldest first; with ``--revision`` shows that spec."""
    connection = connect(options)
    service = connection.service(options.name)
    all_revisions = revisions(connection, service)
    console = make_console()
    if options.revision is not None:
        console.print(Text(_yaml(_spec(_numbered(all_revisions, options.revision, options.name))), end=""))
        return 0
    now = datetime.now(timezone.utc)
    table = Table("REVISION", "PLAN", "AGE", "CHANGE-CAUSE", box=None, pad_edge=False)
    for one in all_revisions:
        metadata = one["metadata"]
        table.add_row(
            f"{number(one)}{'  (current)' if _spec(one) == spec_of_pods(service['spec']) else ''}",
            str(metadata["labels"].get(LABEL_PLAN) or ""),
            age(str(metadata["creationTimestamp"]), now),
            str((metadata.get("annotations") or {}).get(CHANGE_CAUSE) or ""),
        )
    console.print(table)
    return 0


def rollback(options: argparse.Namespace) -> int:
    """Restores an earlier spec: the previous one, or ``--to-revision``. Replicas and the like stay."""
    connection = connect(options)
    service = connection.service(options.name)
    all_revisions = revisions(connection, service)
    current = spec_of_pods(service["spec"])
    earlier = [r for r in all_revisions if _spec(r) != current]
    if options.to_revision:
        target = _numbered(all_revisions, options.to_revision, options.name)
    elif earlier:
        # A refused spec never becomes a revision, so the newest revision may be the target.
        target = earlier[-1]
    else:
        raise ClusterError(f"{options.name} has no earlier revision: see `kubectl vlm history {options.name}`")
    wanted = _spec(target)
    console = make_console()
    if wanted == current:
        console.print(f"{options.name} is already at revision {number(target)}")
        return 0
    for line in difference(current, wanted, "current", f"revision {number(target)}"):
        console.print(Text(line, style={"+": "green", "-": "red"}.get(line[0], "")))
    if options.dry_run:
        console.print("dry run: nothing changed")
        return 0
    patch = patch_to(service["spec"], wanted)
    # Fail on a concurrent change instead of overwriting it.
    patch["metadata"] = {"resourceVersion": service["metadata"]["resourceVersion"]}
    with cluster_errors():
        connection.client.merge(kinds.VLM_SERVICE, connection.namespace, options.name, patch, manager="kubectl-vlm")
    console.print(
        f"{options.name} rolled back to revision {number(target)}: follow it with `kubectl vlm status {options.name}`"
    )
    return 0


def difference(before: Mapping[str, Any], after: Mapping[str, Any], old: str, new: str) -> Iterator[str]:
    """The lines of a unified diff of two specs as YAML; ``old`` and ``new`` name them."""
    return difflib.unified_diff(_yaml(before).splitlines(), _yaml(after).splitlines(), old, new, lineterm="")


def revisions(connection: Connection, service: Document) -> list[Document]:
    """The ControllerRevisions of a service, oldest first. Raises ClusterError."""
    metadata = service["metadata"]
    with cluster_errors():
        candidates = connection.client.list(
            kinds.REVISION, connection.namespace, labels=f"{LABEL_SERVICE}={metadata['name']}"
        )
    return sorted((r for r in candidates if is_owned(r, metadata["uid"])), key=number)


def _numbered(all_revisions: list[Document], wanted: int, name: str) -> Document:
    one = next((r for r in all_revisions if number(r) == wanted), None)
    if one is None:
        known = ", ".join(str(number(r)) for r in all_revisions) or "none"
        raise InvalidInputs([f"{name} has no revision {wanted}: choose one of {known}"])
    return one


def _spec(one: Mapping[str, Any]) -> dict[str, Any]:
    return dict((one.get("data") or {}).get(SPEC) or {})


def _yaml(spec: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump({SPEC: dict(spec)}, sort_keys=True, allow_unicode=True))
