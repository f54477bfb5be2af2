"""Fields of an untrusted JSON object: what has another type or an impossible value counts as missing."""

from collections.abc import Mapping
from typing import Any, Final

MOST: Final = 1_000_000


def section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object; empty if it is missing."""
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}


def count(config: Mapping[str, Any], name: str) -> int | None:
    """A whole number from 1 to ``MOST``."""
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST else None


def text(config: Mapping[str, Any], name: str) -> str:
    """A text; empty if it is missing."""
    found = config.get(name)
    return found if isinstance(found, str) else ""
