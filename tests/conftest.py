"""Orders the suites from quick to slow, and says at the end how long each took, beside its budget."""

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test is timed: a busy machine must not fail it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

TESTS = Path(__file__).parent

# Suite -> seconds that it may take on two cores, cluster and engine already built. A suite that is not named here runs
# last and has no budget.
BUDGET_SECONDS = {
    "unit": 90,
    "docs": 20,
    "demo": 10,
    "routing": 60,
    "monitoring": 120,
    "chart": 150,
    "apiserver": 420,
    "conformance": 300,
    "engine": 420,
    "cluster": 30,
    "e2e": 960,
}

_seconds: dict[str, float] = defaultdict(float)
_counts: dict[str, int] = defaultdict(int)


def suite_of(path: Path) -> str:
    """The folder below tests/ that a test's file is in."""
    inside = path.relative_to(TESTS)
    return inside.parts[0] if len(inside.parts) > 1 else "."


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = list(BUDGET_SECONDS)

    def place(item: pytest.Item) -> tuple[int, str]:
        suite = suite_of(item.path)
        return (order.index(suite) if suite in order else len(order), suite)

    items.sort(key=place)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Set-up counts as well: that is where a suite's server or cluster comes up.
    suite = suite_of(TESTS.parent / report.nodeid.split("::")[0])
    _seconds[suite] += report.duration
    _counts[suite] += report.when == "setup"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if len(_seconds) < 2:
        return
    terminalreporter.section("suites")
    for suite, seconds in _seconds.items():
        budget = BUDGET_SECONDS.get(suite)
        said = "no budget" if budget is None else f"of {budget:4d} s" + (", over budget" if seconds > budget else "")
        terminalreporter.write_line(f"{suite:12} {_counts[suite]:5d} tests  {seconds:7.1f} s  {said}")
