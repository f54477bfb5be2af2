"""What others wrote, made fit to keep and to show: within its bound, and without characters that act on a terminal."""

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

# C0, C1, and the marks that change the direction of what follows. Line ends and tabs stay.
_ACTING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

Item = TypeVar("Item")


def harmless(text: str) -> str:
    """The text with every character that acts on a terminal written as an escape, such as ``\\x1b``."""
    return _ACTING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def cut(text: str, most: int) -> str:
    """At most ``most`` characters. What is cut says how long it was."""
    if len(text) <= most:
        return text
    note = f"…(cut from {len(text):,} characters)"
    return text[: most - len(note)] + note


def cut_bytes(text: str, most: int) -> str:
    """At most ``most`` bytes of UTF-8."""
    encoded = text.encode()
    if len(encoded) <= most:
        return text
    return encoded[: most - len("…".encode())].decode(errors="ignore") + "…"


def first(items: Sequence[Item], most: int, rest: Callable[[int], Item]) -> list[Item]:
    """At most ``most`` items. If some are left out, the last one is ``rest`` of their number."""
    if len(items) <= most:
        return list(items)
    return [*items[: most - 1], rest(len(items) - most + 1)]
