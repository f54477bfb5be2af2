"""Reads values that other programs wrote. The functions accept any input and never raise: invalid values count as
missing."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

_INTEGER: Final = re.compile(r"-?[0-9]{1,12}")
_QUANTITY: Final = re.compile(
    r"\+?([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)
_SUFFIXES: Final = {
    **{
        suffix: Decimal(1000) ** power
        for power, suffix in enumerate(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"], -3)
    },
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], 1)},
}
_TOKEN_BORDER: Final = re.compile(r"[-_\s]+")


def mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """The mapping at ``path`` inside a JSON value; empty if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a JSON list; empty if it is not a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def text(labels: Mapping[str, Any], *keys: str) -> str | None:
    """The first of these labels with a value. Empty values count as missing: cloud providers set them on CPU nodes."""
    for key in keys:
        value = labels.get(key)
        if isinstance(value, str | int | float) and (stripped := str(value).strip()):
            return stripped
    return None


def integer(labels: Mapping[str, Any], *keys: str) -> int | None:
    """The first of these labels that is a whole number of at most twelve digits; it may be negative."""
    for key in keys:
        value = text(labels, key)
        if value is not None and _INTEGER.fullmatch(value):
            return int(value)
    return None


def quantity(value: Any) -> Decimal | None:
    """A Kubernetes quantity (``8``, ``"8k"``, ``"81559Mi"``, ``"1e3"``) in its base unit; None if it is invalid."""
    found = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value).strip())
    if found is None:
        return None
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _SUFFIXES:
        return number * _SUFFIXES[suffix]
    return number.scaleb(int(suffix[1:]))


def count(quantities: Mapping[str, Any], resource: str) -> int:
    """Whole devices of a resource in a node's allocatable or capacity; 0 if there are none."""
    amount = quantity(quantities.get(resource))
    return 0 if amount is None else int(amount)


def tokens(name: str) -> frozenset[str]:
    """The words of a product name in lower case. Products are compared by whole words: L40S is not L4."""
    return frozenset(_TOKEN_BORDER.split(name.lower())) - {""}
