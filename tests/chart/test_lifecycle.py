"""Removing and upgrading a release that serves something."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from chart.installing import CRD, NAMESPACE, Cluster, empty_cluster
from chart.rendering import CHART, IMAGE, REPOSITORY, helm

EXAMPLE = REPOSITORY / "examples" / "qwen3-vl-h100.yaml"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with empty_cluster(tmp_path / "cluster") as found:
        yield found


def test_removing_the_release_leaves_the_services_and_a_new_one_finds_them(cluster: Cluster) -> None:
    cluster.helm("install")
    cluster.kubectl("create", "-f", str(EXAMPLE))
    cluster.helm("uninstall")
    assert cluster.kubectl("get", CRD, "-o", "name")
    assert cluster.kubectl("get", "vlmservices", "qwen3-vl-h100", "-o", "name")
    assert "not found" in cluster.attempt("get", "deployment", "vlm-operator", f"--namespace={NAMESPACE}").stderr
    assert "not found" in cluster.attempt("get", "clusterrole", "vlm-operator").stderr

    cluster.helm("install")
    assert cluster.kubectl("get", "vlmservices", "qwen3-vl-h100", "-o", "name")


def test_an_upgrade_brings_the_crd_up_to_date(cluster: Cluster, tmp_path: Path) -> None:
    older = shutil.copytree(CHART, tmp_path / "older")
    crd = older / "files" / "vlmservices.vlmserve.dev.yaml"
    assert "  - vlm\n" in crd.read_text()
    crd.write_text(crd.read_text().replace("  - vlm\n", "  - vlm\n    - forgotten\n"))
    cluster.helm("install", chart=older)
    assert "forgotten" in cluster.kubectl("get", CRD, "-o", "jsonpath={.spec.names.categories}")
    cluster.helm("upgrade")
    assert json.loads(cluster.kubectl("get", CRD, "-o", "jsonpath={.spec.names.categories}")) == ["all", "vlm"]


def test_releases_of_one_name_serve_different_namespaces_of_one_cluster(cluster: Cluster) -> None:
    for namespace in ("team-a", "team-b", "other-system"):
        cluster.kubectl("create", "namespace", namespace)
    cluster.helm("install", values={"watchNamespaces": ["team-a"]})
    other = {**IMAGE, "watchNamespaces": ["team-b"], "crds": {"install": False}}
    helm(
        *("install", "vlm-operator", str(CHART), "--namespace", "other-system", "--kubeconfig", cluster.kubeconfig),
        values=other,
    )
    for namespace, mine, theirs in ((NAMESPACE, "team-a", "team-b"), ("other-system", "team-b", "team-a")):
        account = f"--as=system:serviceaccount:{namespace}:vlm-operator"

        def may(verb: str, resource: str, where: str, account: str = account) -> str:
            return cluster.attempt("auth", "can-i", verb, resource, account, "--namespace", where).stdout.strip()

        assert may("list", "nodes", mine) == "yes"
        assert may("create", "deployments.apps", mine) == "yes"
        assert may("create", "deployments.apps", theirs) == "no"
        assert may("update", "leases.coordination.k8s.io/vlm-operator", namespace) == "yes"
