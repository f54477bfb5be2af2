"""Reads VLMServices and nodes from files. Each error is one line."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from vlm_api.bounds import harmless
from vlm_api.names import API_VERSION, GROUP, KIND
from vlm_api.problems import nearest, problems
from vlm_api.status import VLMService
from vlm_operator.documents import Document, read_documents
from vlm_operator.errors import InvalidInput, InvalidInputs

# The fields of metav1.ObjectMeta: a misspelt one is refused.
METADATA_FIELDS: Final = (
    "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
    "generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences",
    "resourceVersion", "selfLink", "uid",
)  # fmt: skip
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NAMESPACE_FORM: Final = "must be a name of at most 63 characters: lower-case letters, digits and '-'"


@dataclass(frozen=True)
class ClusterObjects:
    """The cluster's objects that plans are made from."""

    nodes: tuple[Document, ...]
    slices: tuple[Document, ...]
    pods: tuple[Document, ...] = ()
    """Pods. Their devices are not free."""
    has_leader_worker_sets: bool = True
    claims: tuple[Document, ...] = ()
    """PersistentVolumeClaims that several pods of a service share."""


def read_services(files: Iterable[str], namespace: str | None) -> list[VLMService]:
    """The VLMServices in the files. Other objects are skipped, with a note on standard error.

    ``namespace`` comes from the command line; like kubectl, a manifest with another one is refused.
    Raises InvalidInputs with everything that is wrong.
    """
    documents = [document for file in files for document in _documents(file)]
    mine = [document for document in documents if _is_service(document)]
    if not mine:
        kinds = ", ".join(sorted({_kind(d) for d in documents})) or "an empty list"
        raise InvalidInputs([f"kind: no {KIND} found, only {kinds}: give a file with kind: {KIND}"])
    services, lines = [], []
    for document in mine:
        prefix = f"{_name(document)}: " if len(mine) > 1 else ""
        try:
            services.append(_service(document, namespace))
        except InvalidInputs as error:
            lines += [f"{prefix}{line}" for line in error.lines]
    if lines:
        raise InvalidInputs(lines)
    _refuse_duplicates([f"{s.namespace}/{s.name}" for s in services], KIND)
    for document in documents:
        if not _is_service(document):
            skipped = harmless(f"{_kind(document)} {_name(document)}")
            print(f"note: skipping {skipped}: only {KIND}s are planned", file=sys.stderr)
    return services


def read_nodes(file: str) -> ClusterObjects:
    """Nodes, ResourceSlices, Pods and PersistentVolumeClaims, as ``kubectl get -o yaml`` prints them."""
    documents = _documents(file)
    nodes, slices, pods, claims = (
        tuple(d for d in documents if d.get("kind") == kind)
        for kind in ("Node", "ResourceSlice", "Pod", "PersistentVolumeClaim")
    )
    if documents and not nodes and not slices:
        others = ", ".join(sorted({_kind(d) for d in documents}))
        raise InvalidInputs([f"{file}: no Node found, only {others}: use the output of `kubectl get nodes -o yaml`"])
    nameless = [number for number, node in enumerate(nodes) if _name(node) == UNNAMED]
    if nameless:
        raise InvalidInputs([f"{file}: node {number + 1} has no metadata.name: give it one" for number in nameless])
    _refuse_duplicates([_name(node) for node in nodes], "Node")
    return ClusterObjects(nodes, slices, pods, claims=claims)


def _documents(file: str) -> list[Document]:
    try:
        return read_documents(file)
    except InvalidInput as error:
        raise InvalidInputs([str(error)]) from error


def _is_service(document: Document) -> bool:
    """A VLMService, or something close enough that it is checked and refused instead of skipped."""
    kind, group = document.get("kind"), str(document.get("apiVersion")).partition("/")[0]
    if not isinstance(kind, str) or group == GROUP:
        return True
    return kind != "Service" and nearest(kind, [KIND], likeness=0.8) is not None


def _service(document: Document, namespace: str | None) -> VLMService:
    lines = [*_wrong_type(document), *_wrong_metadata(document, namespace)]
    if namespace is not None and isinstance(metadata := document.get("metadata"), dict):
        document = {**document, "metadata": {"namespace": namespace, **metadata}}
    try:
        # The API server fills the status; a plan does not need it.
        service = VLMService.model_validate({k: v for k, v in document.items() if k != "status"})
    except ValidationError as error:
        known = {line.partition(":")[0] for line in lines}
        lines += [str(p) for p in problems(error, VLMService) if p.path not in known]
    if lines:
        raise InvalidInputs(lines)
    return service


def _wrong_type(document: Document) -> list[str]:
    lines = []
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        given = document.get(key)
        if given is None:
            lines.append(f"{key}: is required: write {key}: {wanted}")
        elif given != wanted:
            lines.append(f'{key}: is "{given}", but must be {wanted}')
    return lines


def _wrong_metadata(document: Document, namespace: str | None) -> list[str]:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return [] if metadata is None else ["metadata: must be a map of fields to values"]
    lines = []
    for unknown in [key for key in metadata if key not in METADATA_FIELDS]:
        near = nearest(unknown, METADATA_FIELDS)
        lines.append(f"metadata.{unknown}: unknown field{f', did you mean {near}?' if near else ': remove it'}")
    for part in ("labels", "annotations"):
        entries = metadata.get(part) or {}
        if not isinstance(entries, dict):
            lines.append(f"metadata.{part}: must be a map of names to values")
            continue
        lines += [
            f"metadata.{part}.{key}: must be text: put it in quotes"
            for key, value in entries.items()
            if not isinstance(value, str)
        ]
    own = metadata.get("namespace")
    if own is not None and not isinstance(own, str):
        lines.append("metadata.namespace: must be text: put it in quotes")
    elif not _NAMESPACE.fullmatch(own or namespace or "default"):
        lines.append(f'metadata.namespace: is "{own or namespace}", but {NAMESPACE_FORM}')
    elif own and namespace and own != namespace:
        lines.append(f'metadata.namespace: is "{own}", but the command line has {namespace}: use --namespace={own}')
    return lines


UNNAMED: Final = "(no name)"


def _name(document: Document) -> str:
    metadata: Any = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) and name else UNNAMED


def _kind(document: Document) -> str:
    kind = document.get("kind")
    return kind if isinstance(kind, str) and kind else "(no kind)"


def _refuse_duplicates(names: Sequence[str], kind: str) -> None:
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise InvalidInputs([f"metadata.name: duplicate {kind} {name}: keep one of them" for name in duplicates])
