"""The list of the engine's metrics, which rules and dashboards are checked against, is what its source registers."""

from __future__ import annotations

from pathlib import Path

from monitoring.engine_metrics import listed, registered


def test_the_committed_list_is_what_the_published_engine_registers(engine_site: Path) -> None:
    found = registered(engine_site / "sglang")
    assert len(found) > 150
    assert listed() == found
