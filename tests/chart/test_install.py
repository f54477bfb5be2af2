"""The chart on a real API server: admission and the operator's permissions."""

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
def test_the_installed_api_accepts_the_examples_with_strict_validation(installed: Cluster, example: str) -> None:
    service = yaml.safe_load((REPOSITORY / "examples" / f"{example}.yaml").read_text())
    installed.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", manifest=service)


def test_the_pod_meets_the_restricted_pod_security_standard(installed: Cluster) -> None:
    template = only(render_chart(), "Deployment")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
    installed.kubectl("create", "--dry-run=server", f"--namespace={NAMESPACE}", "-f", "-", manifest=pod)


def test_the_operator_has_the_required_permissions(installed: Cluster) -> None:
    for right in (
        "watch vlmservices.vlmserve.dev",
        "watch nodes",
        "create deployments.apps",
        "create events.events.k8s.io",
    ):
        assert installed.may(*right.split()), right


def test_the_operator_may_write_only_the_status_of_services(installed: Cluster) -> None:
    assert installed.may("patch", "vlmservices.vlmserve.dev", subresource="status")
    assert not installed.may("patch", "vlmservices.vlmserve.dev")


def test_the_operator_has_no_other_permissions(installed: Cluster) -> None:
    for right in ("get secrets", "create pods", "patch nodes", "create leases.coordination.k8s.io"):
        assert not installed.may(*right.split()), right
    assert not installed.may("create", "pods", subresource="exec")


def test_the_operator_may_update_only_its_own_lease(installed: Cluster) -> None:
    assert installed.may("create", "leases.coordination.k8s.io", namespace=NAMESPACE)
    assert installed.may("update", "leases.coordination.k8s.io/vlm-operator", namespace=NAMESPACE)
    assert not installed.may("update", "leases.coordination.k8s.io/somebody-else", namespace=NAMESPACE)
