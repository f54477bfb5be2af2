"""Generates the CustomResourceDefinition and docs/api.md from the types in vlm_api.

    python crds/generate.py            writes the files
    python crds/generate.py --check    exits with 1 if one of them is outdated

`make crds` does this and copies the CRD into the chart.
"""

import argparse
import sys
from pathlib import Path

import yaml

from reference import reference
from vlm_api.crd import custom_resource_definition

REPOSITORY = Path(__file__).resolve().parent.parent
CRD_HEADER = "# Generated from crds/vlm_api by `make crds`; edit the types there.\n"


class _PlainDumper(yaml.SafeDumper):
    """Without anchors and aliases, so that diffs stay readable."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def crd_text() -> str:
    """The CRD as YAML, always the same bytes."""
    document = custom_resource_definition()
    return CRD_HEADER + yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, width=120, allow_unicode=True)


def outputs() -> dict[Path, str]:
    """File -> content."""
    return {REPOSITORY / "crds/vlmservices.vlmserve.dev.yaml": crd_text(), REPOSITORY / "docs/api.md": reference()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Generates the CRD and docs/api.md from crds/vlm_api.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is outdated")
    check = parser.parse_args().check
    outdated = {path: text for path, text in outputs().items() if not path.exists() or path.read_text() != text}
    for path, text in outdated.items():
        name = path.relative_to(REPOSITORY)
        if check:
            print(f"{name} is outdated: run `make crds`", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote {name}")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
