"""Strategic merge of ``spec.template`` over the operator's own pod template.

The merge keys are those of core/v1 (`patchMergeKey` in k8s.io/api/core/v1/types.go). Two things differ on purpose from
what ``kubectl patch`` does, because the plain rule would make pods that the API server refuses: an entry that names
another *kind* of source (a volume, a probe, an environment variable) replaces ours instead of being mixed with it, and
tolerations are added to ours instead of replacing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlm_operator.errors import InvalidInput

# List field -> the key that says which entries are the same. Field names are unambiguous inside a pod template.
MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "claims": "name",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
# Maps whose keys are the user's own words, and no fields: a label may be called "env".
FREE_MAPS = frozenset({"labels", "annotations", "nodeSelector"})
# Lists whose entries have no identity: the user's are added to ours.
APPENDED = frozenset({"tolerations"})
# Entries that say one whole thing: mixing two of them makes nonsense.
REPLACED_WHOLE = frozenset({"env", "volumeMounts"})
# Fields of which a map may hold one only, by the map's own name.
_HANDLERS = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})
ONE_OF: Mapping[str, frozenset[str]] = {
    "startupProbe": _HANDLERS,
    "readinessProbe": _HANDLERS,
    "livenessProbe": _HANDLERS,
    "preStop": _HANDLERS,
    "postStart": _HANDLERS,
}

Tree = dict[str, Any]

_DIRECTIVES = "of the merge directives only $patch: delete and $patch: replace are supported"


def merge_template(ours: Tree, theirs: Mapping[str, Any], path: str = "spec.template") -> Tree:
    """The operator's PodTemplateSpec with the user's over it. Neither argument is changed; the result shares with ``ours``
    what the user leaves as it is.

    ``null`` removes a field and ``{$patch: delete, name: x}`` a list entry, as in ``kubectl patch``. Raises
    InvalidInput where the user's part is not shaped like a PodTemplateSpec.
    """
    for key in theirs:
        if key not in ("metadata", "spec"):
            raise InvalidInput(f"{path}.{key}", "a pod template has metadata and spec: move or remove this field")
    return _merge_maps(ours, theirs, path, field="")


def _merge_maps(ours: Tree, theirs: Mapping[str, Any], path: str, field: str) -> Tree:
    directive = theirs.get("$patch")
    if directive == "replace":
        return {k: _new(v, f"{path}.{k}") for k, v in theirs.items() if v is not None and k != "$patch"}
    if directive is not None:
        raise InvalidInput(f"{path}.$patch", f"{directive!r} works on list entries only: write null to remove a field")
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
        elif field not in FREE_MAPS and (key in MERGE_KEYS or key in APPENDED):
            result[key] = _merge_lists(result.get(key) or [], value, here, key)
        elif isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = _merge_maps(result[key], value, here, key)
        elif isinstance(result.get(key), dict | list) and not isinstance(value, Mapping | list):
            raise InvalidInput(here, f"{value!r} cannot stand here: write a {_shape(result[key])}")
        else:
            result[key] = _new(value, here)
    return result


def _merge_lists(ours: list[Any], theirs: Any, path: str, field: str) -> list[Any]:
    if not isinstance(theirs, list):
        raise InvalidInput(path, f"{theirs!r} cannot stand here: write a list")
    key = MERGE_KEYS.get(field, "")
    if any(isinstance(e, Mapping) and e.get("$patch") == "replace" and key not in e for e in theirs):
        return [_new(e, path) for e in theirs if not (isinstance(e, Mapping) and "$patch" in e)]
    if field in APPENDED:
        return list(ours) + [_new(e, f"{path}[{i}]") for i, e in enumerate(theirs) if e not in ours]
    result = list(ours)
    for index, entry in enumerate(theirs):
        here = f"{path}[{index}]"
        if not isinstance(entry, Mapping) or entry.get(key) is None:
            raise InvalidInput(here, f"an entry of {field} needs {key!r}, which says what it is merged with")
        at = next((i for i, e in enumerate(result) if _same(e, entry, field, key)), None)
        if entry.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_new(entry, here))
        elif field in REPLACED_WHOLE or entry.get("$patch") == "replace" or _another_source(result[at], entry, field):
            result[at] = _new(entry, here)
        else:
            result[at] = _merge_maps(result[at], entry, here, field)
    return result


def _same(ours: Mapping[str, Any], theirs: Mapping[str, Any], field: str, key: str) -> bool:
    if field == "ports" and ours.get("protocol", "TCP") != theirs.get("protocol", "TCP"):
        return False
    return bool(ours.get(key) == theirs[key])


def _another_source(ours: Mapping[str, Any], theirs: Mapping[str, Any], field: str) -> bool:
    """Whether a volume or claim of the same name comes from somewhere else."""
    if field not in ("volumes", "resourceClaims"):
        return False
    return bool(theirs.keys() - {"name"}) and ours.keys() != theirs.keys()


def _new(value: Any, path: str) -> Any:
    """A part of the user's of which we have nothing: without nulls, and without directives, which say nothing here."""
    if isinstance(value, list):
        return [_new(entry, f"{path}[{index}]") for index, entry in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    for key in value:
        if str(key).startswith("$") and not (key == "$patch" and value[key] == "replace"):
            raise InvalidInput(
                f"{path}.{key}", _DIRECTIVES if key != "$patch" else "there is nothing of ours to change here"
            )
    return {k: _new(v, f"{path}.{k}") for k, v in value.items() if v is not None and k != "$patch"}


def _shape(value: object) -> str:
    return "list" if isinstance(value, list) else "map"
