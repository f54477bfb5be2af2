"""``python -m vlm_operator.sglang.catalogue.generate WHEEL...``: reads these wheels into the catalogue.

Releases that are already in the catalogue stay as they are unless a wheel of theirs is given. Wheels come from
``pip download --no-deps --dest WHEELS sglang==VERSION``.
"""

import argparse
import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

from vlm_operator.sglang.catalogue.generate.capabilities import attention, engine_least, quantization
from vlm_operator.sglang.catalogue.generate.facts import TEXTS, architectures, facts
from vlm_operator.sglang.catalogue.generate.flags import fields
from vlm_operator.sglang.catalogue.generate.source import Source
from vlm_operator.sglang.catalogue.generate.spans import Sections, expand, render
from vlm_operator.sglang.catalogue.generate.variables import variables

CATALOGUE: Final = Path(__file__).parent.parent / "catalogue.json"


def read(wheel: Path) -> tuple[str, Sections]:
    """Version and sections of one wheel."""
    source = Source(wheel)
    return source.version, {
        "fields": fields(source),
        "variables": variables(source),
        "facts": facts(source) | {"least_capability": {"value": engine_least(source)}},
        "takes_media": architectures(source, "multimodal_model_archs"),
        "vision_off": architectures(source, "mm_disabled_models"),
        "quantization": quantization(source),
        "attention": attention(source),
    }


def updated(text: str, wheels: Iterable[Path], dropped: Iterable[str] = ()) -> str:
    """The catalogue ``text`` (empty: none yet) with these wheels' releases and without the dropped ones.

    Raises KeyError for a dropped release that is not there.
    """
    found = dict(expand(json.loads(text))) if text else {}
    for version in dropped:
        del found[version]
    return render(found | dict(map(read, wheels)))


def ended(text: str) -> list[str]:
    """Facts that a release has and the next one does not: the engine does otherwise now, or the text has moved."""
    found = list(expand(json.loads(text)).items())
    return [
        f"{version}: no {name}, which {before} has ({file})"
        for (before, earlier), (version, later) in pairwise(found)
        for name, (file, _) in TEXTS.items()
        if name in earlier["facts"] and name not in later["facts"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vlm_operator.sglang.catalogue.generate", description=__doc__)
    parser.add_argument("wheels", nargs="*", type=Path, metavar="WHEEL", help="a wheel, or a folder with one unpacked")
    parser.add_argument("--drop", action="append", default=[], metavar="VERSION", help="remove this release")
    parser.add_argument("--output", type=Path, default=CATALOGUE)
    arguments = parser.parse_args()
    text = arguments.output.read_text("utf-8") if arguments.output.exists() else ""
    try:
        text = updated(text, arguments.wheels, arguments.drop)
    except KeyError as error:
        parser.error(f"the catalogue has no release {error}: --drop takes one of {arguments.output}'s versions")
    arguments.output.write_text(text, encoding="utf-8")
    for line in ended(text):
        print(f"{line}: read the file, then correct TEXTS in generate/facts.py or leave it")


if __name__ == "__main__":
    main()
