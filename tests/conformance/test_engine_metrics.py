"""The engine's metrics, which rules and dashboards are checked against, are what its source registers."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from monitoring.engine_metrics import PREFIX, listed, registered
from monitoring.promql import metrics_of
from monitoring.rendered import dashboards, rules

from vlm_operator.sglang.catalogue.releases import versions


def test_the_committed_list_is_what_the_published_engine_registers(engine_site: Path) -> None:
    found = registered(engine_site / "sglang")
    assert len(found) > 150
    assert listed() == found


@pytest.mark.parametrize("version", versions())
def test_rules_and_dashboards_ask_a_release_for_nothing_that_it_lacks(
    version: str, wheel: Callable[[str], Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel(version)) as archive:
        sources = [name for name in archive.namelist() if name.startswith("sglang/srt/") and name.endswith(".py")]
        archive.extractall(tmp_path, sources)
    assert asked_of_the_engine() - registered(tmp_path / "sglang").keys() == set()


def asked_of_the_engine() -> set[str]:
    """Names of the engine's metrics in all queries, without what histograms add."""
    queries = [rule["expr"] for rule in rules()]
    queries += [t["expr"] for d in dashboards().values() for p in d["panels"] for t in p.get("targets", [])]
    names = {name for query in queries for name in metrics_of(query.replace("$__rate_interval", "5m"))}
    found = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names if name.startswith(PREFIX)}
    assert len(found) > 12
    return found
