"""docs/metrics.md tells every metric of the project as it really is, and none that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from monitoring.everything import of_the_engine, of_the_operator, of_the_runtime

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (\w*) ?\| ([^|]*)\| [^|]+ \|$", re.MULTILINE)
# Units that Prometheus' rules want in the name.
UNITS_IN_NAMES = {"bytes", "seconds", "ratio", "watts", "celsius"}
# What prometheus_client's own collectors add; the page names the prefix.
OF_THE_CLIENT = ("vlm_runtime_process_", "process_", "python_")
# Parts of a sample that are no label of the metric.
OF_A_HISTOGRAM = {"le"}


def real() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Name, type and labels of every metric that the code serves."""
    for registry in (of_the_runtime(), of_the_engine(), of_the_operator()):
        for family in registry.collect():
            if not family.name.startswith(OF_THE_CLIENT):
                name = f"{family.name}_total" if family.type == "counter" else family.name
                labels = frozenset(label for sample in family.samples for label in sample.labels)
                yield name, family.type, labels - OF_A_HISTOGRAM


def test_every_metric_is_told_with_its_type_and_its_labels() -> None:
    told = [
        (name, kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, _, labels in ROW.findall(PAGE.read_text())
    ]
    found = list(real())
    assert len(found) > 30
    assert sorted(told, key=str) == sorted(found, key=str)


def test_a_base_unit_stands_in_the_name() -> None:
    for name, _, unit, _ in ROW.findall(PAGE.read_text()):
        named = UNITS_IN_NAMES & set(name.split("_"))
        assert named == ({unit} & UNITS_IN_NAMES), name


def test_every_row_of_the_page_was_read() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `v")]
    assert len(rows) == len(ROW.findall(PAGE.read_text()))
