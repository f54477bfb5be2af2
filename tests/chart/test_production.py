"""The operator's pods in production: disruption budget, topology spread and network policy."""

from typing import Any

import pytest
from chart.rendering import Manifest, only, render_chart

TWO = {"replicaCount": 2}
NETWORK = {"networkPolicy": {"enabled": True}}


def kinds(values: dict[str, Any] | None = None) -> list[str]:
    return [manifest["kind"] for manifest in render_chart(values)]


def labels(manifests: list[Manifest]) -> dict[str, str]:
    return only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]


def test_a_drain_evicts_one_of_two_operators_at_a_time() -> None:
    manifests = render_chart(TWO)
    budget = only(manifests, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels(manifests).items()


def test_a_single_operator_has_no_budget_that_would_block_a_drain() -> None:
    assert "PodDisruptionBudget" not in kinds()
    assert "PodDisruptionBudget" not in kinds({**TWO, "podDisruptionBudget": {"enabled": False}})


def test_two_operators_prefer_different_nodes() -> None:
    manifests = render_chart(TWO)
    (spread,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert spread["labelSelector"]["matchLabels"].items() <= labels(manifests).items()
    assert "topologySpreadConstraints" not in only(render_chart(), "Deployment")["spec"]["template"]["spec"]


def test_the_network_policy_selects_the_operator_and_opens_its_port() -> None:
    manifests = render_chart(NETWORK)
    policy = only(manifests, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels(manifests).items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (inward,) = policy["ingress"]
    ports = {p["name"] for p in only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {port["port"] for port in inward["ports"]} == ports
    assert "from" not in inward, "the kubelet's probes come from the node"


def test_the_network_policy_allows_the_operator_s_egress() -> None:
    names, server, reports = only(render_chart(NETWORK), "NetworkPolicy")["spec"]["egress"]
    assert {(port["port"], port["protocol"]) for port in names["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert {port["port"] for port in server["ports"]} == {443, 6443}
    assert "to" not in server
    assert [port["port"] for port in reports["ports"]] == [8001]
    (engines,) = reports["to"]
    assert engines["namespaceSelector"] == {}
    assert engines["podSelector"]["matchExpressions"] == [{"key": "vlmserve.dev/service", "operator": "Exists"}]


def test_the_api_server_s_addresses_can_be_configured() -> None:
    values = {"networkPolicy": {"enabled": True, "apiServerPorts": [8443], "apiServerCIDRs": ["10.0.0.1/32"]}}
    server = only(render_chart(values), "NetworkPolicy")["spec"]["egress"][1]
    assert server == {"ports": [{"port": 8443, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}


@pytest.mark.parametrize("kind", ["NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "PrometheusRule", "ConfigMap"])
def test_cluster_dependent_objects_are_off_by_default(kind: str) -> None:
    assert kind not in kinds()
