"""Instance types, the last resort: a cloud node whose labels state only its instance type."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

# A family and a size: p5.48xlarge, g4dn.metal. Other clouds use another format.
_TYPE: Final = re.compile(r"([a-z][a-z0-9-]{1,15})\.(?:[0-9]{0,3}x?large|metal(?:-[0-9]{1,3}xl)?)")


@dataclass(frozen=True)
class InstanceFamily:
    """One row of instance_types.yaml."""

    product: str
    memory_mib: int | None
    """Nominal; None if it depends on the size."""
    part: bool
    """Whether an instance has only a part of a GPU."""


def instance_family(instance_type: str | None) -> InstanceFamily | None:
    """The family of an instance type such as ``p5.48xlarge``; None for one that is not in the table."""
    found = _TYPE.fullmatch(instance_type or "")
    return _table().get(found[1]) if found else None


@cache
def _table() -> dict[str, InstanceFamily]:
    rows: list[dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("instance_types.yaml").read_text("utf-8"))
    return {row["family"]: InstanceFamily(row["product"], row.get("memoryMiB"), row.get("part", False)) for row in rows}
