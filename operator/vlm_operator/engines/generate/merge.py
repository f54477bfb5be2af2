"""Many versions in one file: a record is written once for the span of versions in which it stays the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Records = Mapping[str, Mapping[str, Any]]


def merge(versions: Sequence[str], found: Mapping[str, Records]) -> dict[str, list[dict[str, Any]]]:
    """Name -> spans, oldest first. ``since`` and ``until`` are inclusive; a span without ``until`` goes on to the newest
    version, so that a new version changes only what is new in it."""
    merged: dict[str, list[dict[str, Any]]] = {}
    for name in sorted({name for records in found.values() for name in records}):
        spans: list[dict[str, Any]] = []
        before: Mapping[str, Any] | None = None
        for version, previous in zip(versions, [None, *versions], strict=False):
            record = found[version].get(name)
            if record == before:
                continue
            if before is not None:
                spans[-1]["until"] = previous
            if record is not None:
                spans.append({"since": version, **record})
            before = record
        merged[name] = spans
    return merged


def render(versions: Sequence[str], fields: Mapping[str, Records], variables: Mapping[str, Records]) -> str:
    """The file's text: JSON with one line per span, so that a change of a flag is a line in a diff."""
    parts = [f'"versions": {json.dumps(list(versions))}']
    for title, found in (("fields", fields), ("variables", variables)):
        lines = []
        for name, spans in merge(versions, found).items():
            ordered = [{key: span[key] for key in sorted(span, key=_position)} for span in spans]
            body = ",\n   ".join(json.dumps(span) for span in ordered)
            lines.append(f"  {json.dumps(name)}: [\n   {body}]")
        parts.append(f'"{title}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _position(key: str) -> int:
    return ("since", "until").index(key) if key in ("since", "until") else 2
