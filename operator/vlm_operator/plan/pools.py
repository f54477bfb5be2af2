"""The spec of each pool: the service's, with the pool's own fields in their place. Pure."""

import re
from collections.abc import Hashable, Mapping
from typing import Any, Final

from vlm_api.base import ApiModel
from vlm_api.pools import PoolSpec
from vlm_api.spec import VLMServiceSpec
from vlm_api.template import APPENDED, FREE_MAPS, KEY_DEFAULTS, LIST_KEYS, REPLACED_WHOLE
from vlm_operator.errors import InvalidInput

# Of these a pool says field by field what it wants otherwise.
BY_FIELD: Final = ("model", "parallelism", "multinode", "hardware", "engine")
WHOLE: Final = ("rollout_strategy", "shared_memory_size", "suspend")


def spec_of_pool(spec: VLMServiceSpec, number: int) -> VLMServiceSpec:
    """The spec of one of ``spec.pools``, as if the service had this pool alone.

    Raises InvalidInput for fields that do not go together, such as a pool's split over GPUs and the service's nodes.
    """
    pool = spec.pools[number]
    changed: dict[str, Any] = {"pools": [], "router": None, "replicas": pool.replicas, "scaling": pool.scaling}
    for name in BY_FIELD:
        if (own := getattr(pool, name)) is not None:
            changed[name] = _over(getattr(spec, name), own)
    if pool.engine is not None and pool.engine.settings is not None:
        settings = {**spec.engine.settings, **pool.engine.settings}
        changed["engine"] = changed["engine"].model_copy(update={"settings": settings})
    if pool.concurrency is not None:
        changed["workload"] = spec.workload.model_copy(update={"concurrency": pool.concurrency})
    if pool.template is not None:
        changed["template"] = merge_patches(spec.template, pool.template)
    changed |= {name: own for name in WHOLE if (own := getattr(pool, name)) is not None}
    merged = spec.model_copy(update=changed)
    for rule in VLMServiceSpec.RULES:
        if not rule.holds(merged):
            message = rule.sentence(merged) if rule.sentence is not None else rule.message
            raise InvalidInput(f"spec.pools[{number}].{rule.field}", f"in pool {pool.name}, {message}")
    return merged


def own_path(pool: PoolSpec, number: int, path: str) -> str:
    """Where a user finds a field of the pool's spec: in the pool if it says the field itself, else in the service.

    ``spec.engine.args[0]`` -> ``spec.pools[1].engine.args[0]``.
    """
    parts = re.findall(r"[^.\[\]]+", path)[1:]
    if parts[:2] == ["workload", "concurrency"]:
        return f"spec.pools[{number}].concurrency" if pool.concurrency is not None else path
    given: Any = pool.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    names = (
        parts[: 3 if parts[:2] == ["engine", "settings"] else 2] if parts[:1] and parts[0] in BY_FIELD else parts[:1]
    )
    if parts[:1] in (["replicas"], ["scaling"]):
        return f"spec.pools[{number}]{path.removeprefix('spec')}"
    for name in names:
        if not isinstance(given, Mapping) or name not in given:
            return path
        given = given[name]
    return f"spec.pools[{number}]{path.removeprefix('spec')}" if names else path


def _over(service: ApiModel, pool: ApiModel) -> ApiModel:
    own = {name: value for name in pool.model_fields_set if (value := getattr(pool, name)) is not None}
    return service.model_copy(update=own)


def merge_patches(first: Mapping[str, Any], second: Mapping[str, Any], *, free: bool = False) -> dict[str, Any]:
    """Two strategic merge patches of a pod template as one: what the first does, and then the second.

    Nulls and directives stay, since the operator's own template comes below both. ``free``: the keys are no fields.
    """
    if second.get("$patch") == "replace":
        return dict(second)
    result = dict(first)
    for key, value in second.items():
        before, is_list = result.get(key), not free and (key in LIST_KEYS or key in APPENDED)
        if key in result and before is None:
            result[key] = _instead(value, is_list=is_list)
        elif is_list and isinstance(before, list) and isinstance(value, list):
            result[key] = _lists(before, value, key)
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merge_patches(before, value, free=key in FREE_MAPS)
        else:
            result[key] = value
    return result


def _instead(value: Any, *, is_list: bool) -> Any:
    """A value where the first patch has removed what stood below it."""
    if isinstance(value, Mapping):
        return {**value, "$patch": "replace"}
    return [{"$patch": "replace"}, *value] if is_list and isinstance(value, list) else value


def _lists(first: list[Any], second: list[Any], field: str) -> list[Any]:
    keys = LIST_KEYS.get(field, ("",))
    if any(isinstance(e, Mapping) and e.get("$patch") == "replace" and keys[0] not in e for e in second):
        return second
    if field in APPENDED:
        return first + [each for each in second if each not in first]
    result, places = list(first), {_identity(each, keys): place for place, each in enumerate(first)}
    for entry in second:
        place = places.get(_identity(entry, keys))
        if place is None:
            result.append(entry)
        else:
            result[place] = _entry(result[place], entry, whole=field in REPLACED_WHOLE)
    return result


def _entry(first: Any, second: Any, *, whole: bool) -> Any:
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)) or "$patch" in second or whole:
        return second
    if first.get("$patch") == "delete":
        return {**second, "$patch": "replace"}
    return merge_patches(first, second)


def _identity(entry: Any, keys: tuple[str, ...]) -> Hashable:
    if not isinstance(entry, Mapping):
        return repr(entry)
    return tuple(repr(entry.get(key, KEY_DEFAULTS.get(key))) for key in keys)
