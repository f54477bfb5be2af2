"""Remembers from which inputs something was made, so that it is made again only when one of them changed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from .paths import STAMPS


def fingerprint(parts: Iterable[str | Path]) -> str:
    """A hash over texts, and over names and contents of files; a folder counts with all files in it."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode() + b"\0")
            continue
        files = [part] if part.is_file() else sorted(path for path in part.rglob("*") if path.is_file())
        for file in files:
            if "__pycache__" in file.parts:
                continue
            name = file.relative_to(part) if file != part else Path(file.name)
            digest.update(f"{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def is_current(name: str, value: str) -> bool:
    try:
        return (STAMPS / name).read_text() == value
    except OSError:
        return False


def set_current(name: str, value: str) -> None:
    STAMPS.mkdir(parents=True, exist_ok=True)
    (STAMPS / name).write_text(value)
