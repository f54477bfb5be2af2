"""The chart's rules and dashboards, rendered by Helm as a cluster gets them."""

from __future__ import annotations

import pytest

from minicluster import build


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    build.build(["helm"])
