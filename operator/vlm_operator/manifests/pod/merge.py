"""Strategic merge of ``spec.template`` over the operator's own pod template.

Three things differ on purpose from ``kubectl patch``, because its rule would make pods that the API server refuses or lose
entries: entries are the same if all their keys are, an entry with another *kind* of source (a volume, a probe, an
environment variable) replaces ours instead of being mixed with it, and tolerations are added to ours.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from vlm_api.template import APPENDED, FREE_MAPS, KEY_DEFAULTS, LIST_KEYS, REPLACED_WHOLE
from vlm_operator.errors import InvalidInput

# Fields of which a map may have only one, by the name of the map.
_HANDLERS = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})
ONE_OF: Mapping[str, frozenset[str]] = {
    "startupProbe": _HANDLERS,
    "readinessProbe": _HANDLERS,
    "livenessProbe": _HANDLERS,
    "preStop": _HANDLERS,
    "postStart": _HANDLERS,
}

Tree = dict[str, Any]

_DIRECTIVES = "only the merge directives $patch: delete and $patch: replace are supported: remove this one"
_NO_EFFECT = "has no effect, since the operator sets nothing here: remove it"


def merge_template(ours: Tree, theirs: Mapping[str, Any], path: str = "spec.template") -> Tree:
    """The operator's PodTemplateSpec with the user's merged over it. The arguments stay unchanged; the result shares unchanged
    parts with ``ours``.

    ``null`` removes a field and ``{$patch: delete, name: x}`` a list entry, as in ``kubectl patch``. Raises
    InvalidInput if the user's part does not have the shape of a PodTemplateSpec.
    """
    for key in theirs:
        if key not in ("metadata", "spec"):
            raise InvalidInput(f"{path}.{key}", "a pod template has only metadata and spec: move or remove this field")
    return _merge_maps(ours, theirs, path, field="")


def _merge_maps(ours: Tree, theirs: Mapping[str, Any], path: str, field: str) -> Tree:
    directive = theirs.get("$patch")
    if directive == "replace":
        return {k: _new(v, f"{path}.{k}") for k, v in theirs.items() if v is not None and k != "$patch"}
    if directive is not None:
        raise InvalidInput(
            f"{path}.$patch", f"{directive!r} applies to list entries only: write null to remove a field"
        )
    result = dict(ours)
    group = ONE_OF.get(field, frozenset())
    if group & theirs.keys():
        for handler in group - theirs.keys():
            result.pop(handler, None)
    for key, value in theirs.items():
        here = f"{path}.{key}"
        if key.startswith("$"):
            raise InvalidInput(here, _DIRECTIVES)
        if value is None:
            result.pop(key, None)
        elif field not in FREE_MAPS and (key in LIST_KEYS or key in APPENDED):
            result[key] = _merge_lists(result.get(key) or [], value, here, key)
        elif isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = _merge_maps(result[key], value, here, key)
        elif isinstance(result.get(key), dict | list) and not isinstance(value, Mapping | list):
            shape = "list" if isinstance(result[key], list) else "map"
            raise InvalidInput(here, f"must be a {shape}, not {value!r}")
        else:
            result[key] = _new(value, here)
    return result


def _merge_lists(ours: list[Any], theirs: Any, path: str, field: str) -> list[Any]:
    if not isinstance(theirs, list):
        raise InvalidInput(path, f"must be a list, not {theirs!r}")
    keys = LIST_KEYS.get(field, ("",))
    key = keys[0]
    if any(isinstance(e, Mapping) and e.get("$patch") == "replace" and key not in e for e in theirs):
        return [_new(e, path) for e in theirs if not (isinstance(e, Mapping) and "$patch" in e)]
    if field in APPENDED:
        return list(ours) + [_new(e, f"{path}[{i}]") for i, e in enumerate(theirs) if e not in ours]
    result: list[Any] = list(ours)
    # Where each identity stands, first place first. What is deleted leaves a gap, so that places stay.
    places: dict[Hashable, list[int]] = {}
    for place, each in enumerate(result):
        places.setdefault(_identity(each, keys), []).append(place)
    for index, entry in enumerate(theirs):
        here = f"{path}[{index}]"
        if not isinstance(entry, Mapping) or entry.get(key) is None:
            raise InvalidInput(here, f"must have {key!r}, by which entries of {field} are merged")
        here_too = places.get(_identity(entry, keys))
        at = here_too[0] if here_too else None
        if entry.get("$patch") == "delete":
            if here_too:
                result[here_too.pop(0)] = None
        elif at is None:
            result.append(_new(entry, here))
            places.setdefault(_identity(result[-1], keys), []).append(len(result) - 1)
        elif field in REPLACED_WHOLE or entry.get("$patch") == "replace" or _another_source(result[at], entry, field):
            result[at] = _new(entry, here)
        else:
            result[at] = _merge_maps(result[at], entry, here, field)
    return [each for each in result if each is not None]


def _identity(entry: Mapping[str, Any], keys: Sequence[str]) -> Hashable:
    """The values of an entry's keys. Of a value that is no text or number, which no pod can have, its JSON."""
    values = (entry.get(key, KEY_DEFAULTS.get(key)) for key in keys)
    return tuple(("", json.dumps(v, sort_keys=True)) if isinstance(v, Mapping | list) else v for v in values)


def _another_source(ours: Mapping[str, Any], theirs: Mapping[str, Any], field: str) -> bool:
    """Whether a volume or claim of the same name has another source."""
    if field not in ("volumes", "resourceClaims"):
        return False
    return bool(theirs.keys() - {"name"}) and ours.keys() != theirs.keys()


def _new(value: Any, path: str) -> Any:
    """A part of the user's template that ours does not have: without nulls, and without directives, which have no effect."""
    if isinstance(value, list):
        return [_new(entry, f"{path}[{index}]") for index, entry in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    for key in value:
        if str(key).startswith("$") and not (key == "$patch" and value[key] == "replace"):
            raise InvalidInput(f"{path}.{key}", _DIRECTIVES if key != "$patch" else _NO_EFFECT)
    # Text is most of what users write.
    return {
        k: v if isinstance(v, str) else _new(v, f"{path}.{k}")
        for k, v in value.items()
        if v is not None and k != "$patch"
    }
