"""docs/metrics.md lists every metric with its type and labels, and no others."""

import re
from collections.abc import Iterator
from pathlib import Path

from monitoring.everything import of_the_engine, of_the_operator, of_the_runtime

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
# Metrics of prometheus_client's own collectors; the page names their prefixes.
OF_THE_CLIENT = ("vlm_runtime_process_", "process_", "python_")


def documented() -> Iterator[tuple[str, str, frozenset[str]]]:
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `v"):
            name, kind, _, labels, _ = (cell.strip() for cell in line.strip("|").split(" |"))
            yield name.strip("`"), kind, frozenset(re.findall(r"`(\w+)`", labels))


def served() -> Iterator[tuple[str, str, frozenset[str]]]:
    for registry in (of_the_runtime(), of_the_engine(), of_the_operator()):
        for family in registry.collect():
            if not family.name.startswith(OF_THE_CLIENT):
                name = f"{family.name}_total" if family.type == "counter" else family.name
                labels = frozenset(label for sample in family.samples for label in sample.labels)
                yield name, family.type, labels - {"le"}


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    assert sorted(documented(), key=str) == sorted(served(), key=str)
