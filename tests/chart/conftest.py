"""The chart's tests need Helm, which the cluster's build makes."""

from __future__ import annotations

import pytest

from minicluster import build


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    build.build(["helm", "kubectl"])
