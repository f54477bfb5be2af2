"""Whether a live object already is what would be applied, so that a reconcile that changes nothing sends nothing.

Two questions: does the live object hold every value that we want (``contained``), and do we still own a field there that
we no longer want (``covered``, by the object's managedFields)? Only when the answers are yes and no would an apply change
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from vlm_api.names import FIELD_MANAGER

# List field -> the keys by which the API server tells entries apart. Every other list is compared as a whole.
LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port", "protocol"),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "schedulingGates": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ownerReferences": ("uid",),
}
# Rules of a NetworkPolicy, where whatever is added opens a door.
_EXACT: Final = frozenset({"ingress", "egress"})
# Where "1024Mi" and "1Gi" are the same: the API server writes quantities in its own way.
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "hard"})
_QUANTITY_FIELDS: Final = frozenset({"sizeLimit", "averageValue", "divisor"})
# Fields that the apply itself carries, or that say nothing about the object's content.
_IDENTITY: Final = frozenset({"apiVersion", "kind"})


def satisfied(desired: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether applying ``desired`` over ``live`` would change nothing."""
    owned = owned_fields(live)
    return owned is not None and covered(owned, desired) and contained(desired, live, owned)


def owned_fields(live: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fields that the operator has applied, as FieldsV1; None where it never applied this object."""
    for entry in (live.get("metadata") or {}).get("managedFields") or []:
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource"):
            fields: Mapping[str, Any] = entry.get("fieldsV1") or {}
            return fields
    return None


def covered(owned: Mapping[str, Any], desired: Any) -> bool:
    """Whether everything that we own (FieldsV1) is still in what we want."""
    for path, below in owned.items():
        kind, _, name = path.partition(":")
        if kind == "f":
            if not isinstance(desired, Mapping) or name not in desired:
                return False
            found = desired[name]
        elif kind == "k":
            keys = json.loads(name)
            candidates = desired if isinstance(desired, list) else []
            found = next((e for e in candidates if _identified(e, keys)), None)
            if found is None:
                return False
        elif kind == "v":
            if not isinstance(desired, list) or json.loads(name) not in desired:
                return False
            continue
        else:
            # "." is the field itself; "i" an index, which the API server uses for no list of ours.
            continue
        if below and not covered(below, found):
            return False
    return True


def _identified(entry: Any, keys: Mapping[str, Any]) -> bool:
    """A key that we leave out gets a default at the API server, such as the protocol of a port."""
    return isinstance(entry, Mapping) and all(entry.get(key, value) == value for key, value in keys.items())


def contained(
    desired: Any, live: Any, owned: Mapping[str, Any] | None = None, field: str = "", parent: str = ""
) -> bool:
    """Whether ``live`` has every value of ``desired``. Fields that only ``live`` has are defaults or other managers'.

    ``owned`` are our fields below this point; None: everything below is ours. It decides about empty values, which the
    API server does not store: where such a field is still ours, nobody has changed it.
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
    keys = LIST_KEYS.get(field)
    if keys is None or not all(isinstance(e, Mapping) for e in desired):
        return len(desired) == len(live) and all(contained(d, e) for d, e in zip(desired, live, strict=True))
    for entry in desired:
        identity = {key: entry[key] for key in keys if key in entry}
        found = next((e for e in live if all(e.get(key) == value for key, value in identity.items())), None)
        if found is None or not contained(entry, found, _entry(owned, found)):
            return False
    return True


def _entry(owned: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Our fields of one entry of a list."""
    if owned is None:
        return None
    for path, below in owned.items():
        if path.startswith("k:") and _identified(entry, json.loads(path[2:])):
            return below or None
    return {}


def _below(owned: Mapping[str, Any] | None, path: str) -> Mapping[str, Any] | None:
    """Our fields below a path. A field that ends there is ours with all that is in it."""
    if owned is None:
        return None
    return (owned[path] or None) if path in owned else {}


def _same_quantity(one: Any, other: Any) -> bool:
    try:
        return bool(parse_quantity(one) == parse_quantity(other))  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        return False
