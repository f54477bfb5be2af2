"""The history of a service: one ControllerRevision for each spec that pods were made from, the newest ten.

What is kept is the part of the spec that pods are made from, as the user wrote it: going back must not undo how many
replicas there are, nor whether the service is suspended. The operator only writes revisions; ``kubectl vlm history``
shows them and ``rollback`` puts an earlier spec back into the VLMService.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_operator.kube import kinds
from vlm_operator.kube.client import Json
from vlm_operator.render.names import object_labels

HISTORY: Final = 10
CHANGE_CAUSE: Final = "kubernetes.io/change-cause"
SPEC: Final = "spec"
# Fields of the spec that never change what runs in a pod, by their names in the API.
OUTSIDE: Final = frozenset({"replicas", "scaling", "suspend", "rolloutStrategy", "metrics"})


def revision_name(service: str, digest: str) -> str:
    """The revision of the spec with that digest: the same spec later is the same revision with a higher number."""
    return f"{service}-{digest}"


def revision(raw: Json, digest: str, plan_hash: str, live: Sequence[Json], owner: Json) -> Json:
    """The ControllerRevision of the spec in force. It is the newest: a spec that comes back gets the next number."""
    metadata = raw["metadata"]
    name = revision_name(metadata["name"], digest)
    newest = max(live, key=number, default=None)
    current = newest is not None and newest["metadata"]["name"] == name
    same = next((r for r in live if r["metadata"]["name"] == name), None)
    # What is in it never changes, so a revision of an operator that wrote it otherwise stays as it is.
    data = same["data"] if same is not None else {SPEC: spec_of_pods(raw["spec"])}
    made: dict[str, Any] = {
        "apiVersion": kinds.REVISION.api_version,
        "kind": kinds.REVISION.kind,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": object_labels(metadata["name"], plan_hash),
            "ownerReferences": [owner],
        },
        "data": data,
        "revision": number(newest) if newest is not None and current else number(newest) + 1,
    }
    if cause := (metadata.get("annotations") or {}).get(CHANGE_CAUSE):
        made["metadata"]["annotations"] = {CHANGE_CAUSE: cause}
    return made


def surplus(live: Sequence[Json], current: str) -> list[Json]:
    """Revisions beyond the newest ten; the current one always stays."""
    older = sorted((r for r in live if r["metadata"]["name"] != current), key=number, reverse=True)
    return older[HISTORY - 1 :]


def number(found: Mapping[str, Any] | None) -> int:
    """A revision's number; 0 where there is none."""
    return int(found.get("revision") or 0) if found is not None else 0


def spec_of_pods(spec: Mapping[str, Any]) -> Json:
    """The part of a spec that pods are made from."""
    return {key: value for key, value in spec.items() if key not in OUTSIDE}


def patch_to(spec: Mapping[str, Any], earlier: Mapping[str, Any]) -> Json:
    """The JSON merge patch of a VLMService that makes its pods' part of the spec the earlier one, and leaves the rest."""
    return {SPEC: _merge(spec_of_pods(spec), earlier)}


def _merge(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    patch: Json = {key: None for key in now if key not in wanted}
    for key, value in wanted.items():
        before = now.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if below := _merge(before, value):
                patch[key] = below
        elif before != value:
            patch[key] = value
    return patch
