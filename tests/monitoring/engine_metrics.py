"""The engine's metrics: those that its source registers, and the committed list of them.

``python tests/monitoring/engine_metrics.py PATH/TO/sglang > tests/monitoring/engine-metrics.tsv`` regenerates the list
from the package in the wheel. A test of the conformance suite compares the two.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).with_name("engine-metrics.tsv")
KINDS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "Summary": "summary"}
PREFIX = "sglang:"


def registered(package: Path) -> dict[str, str]:
    """Metric name -> type of every metric with a literal name in the server's source."""
    found: dict[str, str] = {}
    for path in sorted((package / "srt").rglob("*.py")):
        text = path.read_text(errors="replace")
        if PREFIX in text:
            found |= _registered(ast.parse(text))
    return dict(sorted(found.items()))


def _registered(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        kind = KINDS.get(called.lstrip("_"))
        names = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "name")]
        for name in names if kind else []:
            if isinstance(name, ast.Constant) and str(name.value).startswith(PREFIX):
                yield str(name.value), str(kind)


def listed() -> dict[str, str]:
    """The committed list."""
    rows = (line.split("\t", 1) for line in LIST.read_text().splitlines() if not line.startswith("#"))
    return dict(tuple(row) for row in rows)


def main(package: Path) -> None:
    print("# Metrics of the newest catalogued SGLang, from its source; made by tests/monitoring/engine_metrics.py.")
    for name, kind in registered(package).items():
        print(f"{name}\t{kind}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
