"""The chart on a real API server: what it accepts, and what the operator may do there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from chart.installing import NAMESPACE, Cluster, empty_cluster
from chart.rendering import REPOSITORY, only, render_chart


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with empty_cluster(tmp_path_factory.mktemp("installed")) as cluster:
        cluster.helm("install")
        yield cluster


@pytest.mark.parametrize("example", sorted(path.stem for path in (REPOSITORY / "examples").glob("qwen3-vl-*.yaml")))
def test_the_installed_api_takes_the_examples_strictly(installed: Cluster, example: str) -> None:
    service = yaml.safe_load((REPOSITORY / "examples" / f"{example}.yaml").read_text())
    installed.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", manifest=service)


def test_the_pod_is_admitted_where_only_restricted_pods_are(installed: Cluster) -> None:
    template = only(render_chart(), "Deployment")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
    installed.kubectl("create", "--dry-run=server", f"--namespace={NAMESPACE}", "-f", "-", manifest=pod)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("watch", "vlmservices.vlmserve.dev"),
        ("watch", "nodes"),
        ("watch", "resourceslices.resource.k8s.io"),
        ("watch", "pods"),
        ("create", "deployments.apps"),
        ("patch", "networkpolicies.networking.k8s.io"),
        ("create", "events.events.k8s.io"),
    ],
)
def test_the_operator_may(installed: Cluster, verb: str, resource: str) -> None:
    assert installed.may(verb, resource)


def test_the_operator_may_write_the_status_of_services_and_nothing_else_of_them(installed: Cluster) -> None:
    assert installed.may("patch", "vlmservices.vlmserve.dev", subresource="status")
    assert not installed.may("patch", "vlmservices.vlmserve.dev")


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("create", "pods"),
        ("patch", "nodes"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
        ("create", "leases.coordination.k8s.io"),
    ],
)
def test_the_operator_may_not(installed: Cluster, verb: str, resource: str) -> None:
    assert not installed.may(verb, resource)


def test_the_operator_cannot_run_commands_in_pods(installed: Cluster) -> None:
    assert not installed.may("create", "pods", subresource="exec")


def test_the_operator_holds_its_own_lease_and_no_other(installed: Cluster) -> None:
    assert installed.may("create", "leases.coordination.k8s.io", namespace=NAMESPACE)
    assert installed.may("update", "leases.coordination.k8s.io/vlm-operator", namespace=NAMESPACE)
    assert not installed.may("update", "leases.coordination.k8s.io/somebody-else", namespace=NAMESPACE)
