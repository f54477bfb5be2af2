"""The chart's tests need Helm and kubectl from the cluster's build."""

import pytest

from minicluster import build


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    build.build(["helm", "kubectl"])
