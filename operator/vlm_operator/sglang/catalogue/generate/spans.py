"""Many versions in one file: a record is written once for the span of versions in which it stays the same."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

Records = Mapping[str, Mapping[str, Any]]
"""Name -> what one release has under it."""
Sections = Mapping[str, Records]
"""Section -> its records in one release."""

SECTIONS: Final = ("fields", "variables", "facts", "takes_media", "vision_off", "quantization", "attention")


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


def expand(data: Mapping[str, Any]) -> Mapping[str, Sections]:
    """The other way round: version -> section -> its records, from the catalogue's file."""
    versions: list[str] = data["versions"]
    found: dict[str, dict[str, dict[str, Any]]] = {version: {each: {} for each in SECTIONS} for version in versions}
    for section in SECTIONS:
        for name, spans in data.get(section, {}).items():
            for span in spans:
                record = {key: value for key, value in span.items() if key not in ("since", "until")}
                first, last = versions.index(span["since"]), versions.index(span.get("until", versions[-1]))
                for version in versions[first : last + 1]:
                    found[version][section][name] = record
    return found


def render(found: Mapping[str, Sections]) -> str:
    """The file's text: JSON with one line per span, so that a change of a flag is a line in a diff."""
    versions = sorted(found, key=lambda version: [int(part) for part in re.findall(r"[0-9]+", version)])
    parts = [f'"versions": {json.dumps(versions)}']
    for section in SECTIONS:
        lines = []
        for name, spans in merge(versions, {version: found[version][section] for version in versions}).items():
            ordered = [{key: span[key] for key in sorted(span, key=_position)} for span in spans]
            body = ",\n   ".join(json.dumps(span) for span in ordered)
            lines.append(f"  {json.dumps(name)}: [\n   {body}]")
        parts.append(f'"{section}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _position(key: str) -> int:
    return ("since", "until").index(key) if key in ("since", "until") else 2
