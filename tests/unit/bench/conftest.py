"""What the tests of measuring share: quick intervals, no plots in folders, and the load's program under test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from unit.bench.test_driver import drive_with

from vlm_bench.reports import bench_report
from vlm_bench.statistics import interval


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "RESAMPLES", 300)


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib is slow."""
    monkeypatch.setattr(bench_report, "bench_page", lambda results: "a page")


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the load's program: exit code, events, and everything that was printed."""
    return partial(drive_with, monkeypatch, capsys)
