"""Known faults of SGLang's releases, from ``known.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vlm_operator.engines.catalogue import known, versions


@dataclass(frozen=True)
class Fault:
    """One fault of a release."""

    name: str
    mended: str
    """The first version without it."""
    reason: str
    """What it does, as the rest of a sentence that begins with the version's name."""
    step: str
    """What to do instead of taking another version, beginning with "or"."""
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Setting -> the values with which it shows; empty: always."""


def faults(version: str | None) -> Iterator[Fault]:
    """The known faults of a catalogued version; none are known of an unknown one."""
    order = versions()
    if version not in order:
        return
    for name, row in known()["faults"].items():
        if order.index(version) <= order.index(row["until"]):
            when = {setting: tuple(values) for setting, values in row.get("when", {}).items()}
            yield Fault(name, row["mended"], row["reason"], row["step"], when)


def has_fault(version: str | None, name: str) -> bool:
    """Whether a version has the fault of that name."""
    return any(fault.name == name for fault in faults(version))


def mended(name: str) -> str:
    """The first version without the fault of that name."""
    version: str = known()["faults"][name]["mended"]
    return version
