"""Uninstalling and upgrading a release that has services."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from chart.installing import CRD, NAMESPACE, Cluster, empty_cluster
from chart.rendering import CHART, REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "qwen3-vl-h100.yaml"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with empty_cluster(tmp_path / "cluster") as found:
        yield found


def test_uninstall_keeps_the_services_for_a_new_release(cluster: Cluster) -> None:
    cluster.helm("install")
    cluster.kubectl("create", "-f", str(EXAMPLE))
    cluster.helm("uninstall")
    assert cluster.kubectl("get", CRD, "-o", "name")
    assert cluster.kubectl("get", "vlmservices", "qwen3-vl-h100", "-o", "name")
    assert "not found" in cluster.attempt("get", "deployment", "vlm-operator", f"--namespace={NAMESPACE}").stderr
    assert "not found" in cluster.attempt("get", "clusterrole", "vlm-operator").stderr

    cluster.helm("install")
    assert cluster.kubectl("get", "vlmservices", "qwen3-vl-h100", "-o", "name")


def test_an_upgrade_updates_the_crd(cluster: Cluster, tmp_path: Path) -> None:
    older = shutil.copytree(CHART, tmp_path / "older")
    crd = older / "files" / "vlmservices.vlmserve.dev.yaml"
    assert "  - vlm\n" in crd.read_text()
    crd.write_text(crd.read_text().replace("  - vlm\n", "  - vlm\n    - forgotten\n"))
    cluster.helm("install", chart=older)
    assert "forgotten" in cluster.kubectl("get", CRD, "-o", "jsonpath={.spec.names.categories}")
    cluster.helm("upgrade")
    assert json.loads(cluster.kubectl("get", CRD, "-o", "jsonpath={.spec.names.categories}")) == ["all", "vlm"]
