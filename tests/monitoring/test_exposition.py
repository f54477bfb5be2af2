"""Every metric of the project follows Prometheus' naming rules, checked by promtool."""

from collections.abc import Callable

import pytest
from monitoring.everything import of_the_engine, of_the_operator, of_the_runtime
from monitoring.promtool import complaints
from prometheus_client import CollectorRegistry, Gauge, generate_latest


@pytest.mark.parametrize("everything", [of_the_runtime, of_the_engine, of_the_operator])
def test_promtool_reports_no_errors(everything: Callable[[], CollectorRegistry]) -> None:
    assert complaints(generate_latest(everything()).decode()) == []


def test_promtool_reports_a_wrong_unit() -> None:
    own = CollectorRegistry()
    Gauge("vlm_runtime_wait_milliseconds", "Not a base unit.", registry=own)
    assert any("base unit" in line for line in complaints(generate_latest(own).decode()))
