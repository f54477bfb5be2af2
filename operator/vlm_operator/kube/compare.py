"""Compares desired and live objects: whether an apply would change anything, and whether an update can at all.

An apply changes nothing if the live object has every desired value (``contained``) and we own no field that is no longer
desired (``covered``, by its managedFields). So a reconcile that changes nothing sends nothing.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from vlm_api.names import FIELD_MANAGER, LABEL_POOL, LABEL_ROLE, LWS_KIND
from vlm_api.template import LIST_KEYS
from vlm_operator.kube.alike import Alike
from vlm_operator.kube.answers import Json

# Of lists in all our objects; "ports" are also those of a Service. Every other list is compared as a whole.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    **LIST_KEYS,
    "ports": (*LIST_KEYS["ports"], "port"),
    "ownerReferences": ("uid",),
}
# Fields compared as a whole: rules of a NetworkPolicy, since an addition opens something, and selectors, which are atomic for
# the API server, so that managedFields do not list their contents.
_EXACT: Final = frozenset({"ingress", "egress", "selector", "podSelector", "nodeSelector"})
# Quantities: the API server normalizes them, so "1024Mi" and "1Gi" are equal.
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "hard"})
_QUANTITY_FIELDS: Final = frozenset({"sizeLimit", "averageValue", "divisor"})
# Fields that identify the object and are not part of its content.
_IDENTITY: Final = frozenset({"apiVersion", "kind"})


def satisfied(desired: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether applying ``desired`` over ``live`` would change nothing."""
    owned = owned_fields(live)
    return owned is not None and covered(owned, desired) and contained(desired, live, owned)


def owned_fields(live: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fields that the operator has applied, or created by POST, as FieldsV1; None if it did neither."""
    entries = [e for e in _managed(live) if e.get("manager") == FIELD_MANAGER and not e.get("subresource")]
    for operation in ("Apply", "Update"):
        for entry in entries:
            if entry.get("operation") == operation:
                fields: Mapping[str, Any] = entry.get("fieldsV1") or {}
                return fields
    return None


def is_created_by_post(live: Mapping[str, Any]) -> bool:
    """Whether the operator created the object by POST and never applied it."""
    return any(is_from_post(entry) for entry in _managed(live))


def is_from_post(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of ``managedFields`` is that of the operator's POST."""
    return entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Update" and not entry.get("subresource")


def _managed(live: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (live.get("metadata") or {}).get("managedFields") or []


def covered(owned: Mapping[str, Any], desired: Any) -> bool:
    """Whether every field that we own (FieldsV1) is still desired."""
    entries = [e for e in desired if isinstance(e, Mapping)] if isinstance(desired, list) else []
    keyed = _keyed(owned)
    names = {name for keys in keyed.values() for name in keys}
    index = Alike([{name: e[name] for name in names & e.keys()} for e in entries])
    for path, below in owned.items():
        kind, _, name = path.partition(":")
        if kind == "f":
            if not isinstance(desired, Mapping) or name not in desired:
                return False
            below_desired = desired[name]
        elif kind == "k":
            at = index.first(keyed[path])
            if at is None:
                return False
            below_desired = entries[at]
        elif kind == "v":
            if not isinstance(desired, list) or json.loads(name) not in desired:
                return False
            continue
        else:
            # "." is the field itself; "i" is an index, which no list of ours uses.
            continue
        if below and not covered(below, below_desired):
            return False
    return True


def _keyed(owned: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The keys of each list entry in FieldsV1, by path. A key that an entry lacks is completed by the API server, such as the
    protocol of a port, so an entry is looked up by the keys that it has."""
    return {path: json.loads(path[2:]) for path in owned if path.startswith("k:")}


def contained(
    desired: Any, live: Any, owned: Mapping[str, Any] | None = None, field: str = "", parent: str = ""
) -> bool:
    """Whether ``live`` has every value of ``desired``. Fields that only ``live`` has are defaults or belong to other managers.

    ``owned`` are our fields below this point; None: everything below is ours. It decides about empty values, which the
    API server does not store: if such a field is still ours, nobody has changed it.
    """
    if field in _EXACT:
        return bool(desired == live)
    if isinstance(desired, Mapping):
        return isinstance(live, Mapping) and all(
            contained(value, live[key], _below(owned, f"f:{key}"), key, field)
            if live.get(key) is not None
            else not value and (owned is None or f"f:{key}" in owned)
            for key, value in desired.items()
            if key not in _IDENTITY
        )
    if isinstance(desired, list):
        return _list_contained(desired, live, owned, field)
    if isinstance(desired, bool) or isinstance(live, bool):
        return desired is live
    if desired == live:
        return True
    if parent in _QUANTITY_MAPS or field in _QUANTITY_FIELDS:
        return _same_quantity(desired, live)
    return False


def _list_contained(desired: list[Any], live: Any, owned: Mapping[str, Any] | None, field: str) -> bool:
    if not isinstance(live, list):
        return False
    keys = _KEYS.get(field)
    if keys is None or not all(isinstance(e, Mapping) for e in desired):
        return len(desired) == len(live) and all(contained(d, e) for d, e in zip(desired, live, strict=True))
    index = Alike([{key: e.get(key) for key in keys} for e in live])
    keyed = _keyed(owned or {})
    paths, ours = list(keyed), Alike(list(keyed.values()))
    for entry in desired:
        same = index.first({key: entry[key] for key in keys if key in entry})
        if same is None:
            return False
        below: Mapping[str, Any] | None = None
        if owned is not None:
            at = ours.first(live[same])
            below = (owned[paths[at]] or None) if at is not None else {}
        if not contained(entry, live[same], below):
            return False
    return True


def _below(owned: Mapping[str, Any] | None, path: str) -> Mapping[str, Any] | None:
    """Our fields below a path. A field without fields below it is ours as a whole."""
    if owned is None:
        return None
    return (owned[path] or None) if path in owned else {}


def _same_quantity(one: Any, other: Any) -> bool:
    try:
        return bool(parse_quantity(one) == parse_quantity(other))  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        return False


def why_replaced(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> str | None:
    """Why the live object must be deleted before the wanted one can be applied; None if an update is enough.

    The selector of a Deployment is immutable; labels that an admission webhook has added only narrow it. A LeaderWorkerSet has
    none, but the Service no longer selects pods without the labels of a pool: replaced, all groups start at once instead of
    one after the other.
    """
    if wanted["kind"] == "Deployment":
        return _unlike(wanted["spec"]["selector"], live["spec"]["selector"])
    if wanted["kind"] == LWS_KIND:
        ours, theirs = (_labels(o["spec"]["leaderWorkerTemplate"]["workerTemplate"]) for o in (wanted, live))
        lacking = [label for label in (LABEL_POOL, LABEL_ROLE) if ours.get(label) != theirs.get(label)]
        return f"its pods lack the labels {' and '.join(lacking)}" if lacking else None
    return None


def _labels(template: Mapping[str, Any]) -> Mapping[str, str]:
    return (template.get("metadata") or {}).get("labels") or {}


def _unlike(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> str | None:
    ours, theirs = wanted["matchLabels"], live.get("matchLabels") or {}
    differing = sorted(key for key, value in ours.items() if theirs.get(key) != value)
    return f"its selector is immutable and differs in {' and '.join(differing)}" if differing else None


def with_live_selector(wanted: Json, live: Json) -> Json:
    """The wanted object with the selector of the live Deployment, which has all labels of ours and cannot change."""
    if wanted["kind"] != "Deployment":
        return wanted
    return {**wanted, "spec": {**wanted["spec"], "selector": live["spec"]["selector"]}}
