"""The history of a service: one ControllerRevision for each spec that pods were made from, the newest ten.

A revision holds the part of the spec that pods are made from, as the user wrote it: a rollback must change neither the
number of replicas nor whether the service is suspended. The operator only writes revisions; ``kubectl vlm history`` shows
them and ``rollback`` puts an earlier spec back into the VLMService.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_api.names import LABEL_PLAN
from vlm_operator.manifests.names import Manifest, object_labels
from vlm_operator.plan.digest import OUTSIDE_THE_PLAN

HISTORY: Final = 10
CHANGE_CAUSE: Final = "kubernetes.io/change-cause"
SPEC: Final = "spec"
POOLS: Final = "pools"


def revision_name(service: str, digest: str) -> str:
    """The revision of the spec with that digest: the same spec later is the same revision with a higher number."""
    return f"{service}-{digest}"


def revision(raw: Manifest, digest: str, plan_hash: str, live: Sequence[Manifest], owner: Manifest) -> Manifest:
    """The ControllerRevision of the spec in force, always the newest: a spec that comes back gets the next number."""
    metadata = raw["metadata"]
    name = revision_name(metadata["name"], digest)
    newest = max(live, key=number, default=None)
    current = newest is not None and newest["metadata"]["name"] == name
    same = next((r for r in live if r["metadata"]["name"] == name), None)
    # The data of a revision is immutable, so one written by another version of the operator stays as it is.
    data = same["data"] if same is not None else {SPEC: spec_of_pods(raw["spec"])}
    written: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": object_labels(metadata["name"]) | {LABEL_PLAN: plan_hash},
            "ownerReferences": [owner],
        },
        "data": data,
        "revision": number(newest) if newest is not None and current else number(newest) + 1,
    }
    if cause := (metadata.get("annotations") or {}).get(CHANGE_CAUSE):
        written["metadata"]["annotations"] = {CHANGE_CAUSE: cause}
    return written


def surplus(live: Sequence[Manifest], current: str) -> list[Manifest]:
    """Revisions beyond the newest ten; the current one always stays."""
    older = sorted((r for r in live if r["metadata"]["name"] != current), key=number, reverse=True)
    return older[HISTORY - 1 :]


def number(live: Mapping[str, Any] | None) -> int:
    """The number of a revision; 0 without one."""
    return int(live.get("revision") or 0) if live is not None else 0


def spec_of_pods(spec: Mapping[str, Any]) -> Manifest:
    """The part of a spec that pods are made from."""
    part = _of_pods(spec)
    return {**part, POOLS: [_of_pods(pool) for pool in spec[POOLS]]} if spec.get(POOLS) else part


def _of_pods(spec: Mapping[str, Any]) -> Manifest:
    return {key: value for key, value in spec.items() if key not in OUTSIDE_THE_PLAN}


def patch_to(spec: Mapping[str, Any], earlier: Mapping[str, Any]) -> Manifest:
    """The JSON merge patch of a VLMService that restores the earlier part of the spec that pods are made from, and nothing
    else."""
    patch = merge_patch(spec_of_pods(spec), earlier)
    if patch.get(POOLS):
        # A merge patch replaces lists as a whole.
        now = {pool["name"]: pool for pool in spec.get(POOLS) or []}
        kept = {name: {k: v for k, v in pool.items() if k in OUTSIDE_THE_PLAN} for name, pool in now.items()}
        # Weights stand in all pools or in none; one that comes back gets requests once somebody gives it a weight.
        new = {"weight": 0} if any("weight" in own for own in kept.values()) else {}
        patch[POOLS] = [{**pool, **kept.get(pool["name"], new)} for pool in patch[POOLS]]
    return {SPEC: patch}


def merge_patch(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> Manifest:
    """The JSON merge patch that makes one object of the other."""
    patch: Manifest = {key: None for key in now if key not in wanted}
    for key, value in wanted.items():
        before = now.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if below := merge_patch(before, value):
                patch[key] = below
        elif before != value:
            patch[key] = value
    return patch
