"""``python -m vlm_operator.engines.generate WHEEL...``: writes the catalogue from these wheels, all versions at once.

Wheels come from ``pip download --no-deps --dest WHEELS sglang==VERSION`` for each version to be known.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vlm_operator.engines.generate.flags import fields
from vlm_operator.engines.generate.merge import Records, render
from vlm_operator.engines.generate.source import Source
from vlm_operator.engines.generate.variables import variables

CATALOGUE: Final = Path(__file__).parent.parent / "catalogue.json"


def read(wheel: Path) -> tuple[str, Records, Records]:
    """Version, fields and variables of one wheel."""
    source = Source(wheel)
    return source.version, fields(source), variables(source)


def catalogue(wheels: Sequence[Path]) -> str:
    """The text of the catalogue for these wheels."""
    found = {version: (flags, names) for version, flags, names in map(read, wheels)}
    versions = sorted(found, key=lambda version: [int(part) for part in re.findall(r"[0-9]+", version)])
    return render(versions, {v: found[v][0] for v in versions}, {v: found[v][1] for v in versions})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vlm_operator.engines.generate", description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL", help="a wheel, or a folder with one unpacked")
    parser.add_argument("--output", type=Path, default=CATALOGUE)
    arguments = parser.parse_args()
    arguments.output.write_text(catalogue(arguments.wheels), encoding="utf-8")


if __name__ == "__main__":
    main()
