"""What URLs in requests can reach, as it is told to the user."""

from typing import Any

import pytest
from unit.plan.builders import RUNTIME_IMAGE, cluster, node, plan, request_of, service

from vlm_api.plan import Finding, Severity
from vlm_operator.errors import InvalidInput
from vlm_operator.plan.make import make_plan

DOMAINS = {"allowedMediaDomains": ["images.example.com"]}


def doors(**spec: Any) -> list[Finding]:
    found = ("MediaUrlsOpen", "MediaDomainsNotEnforced", "MediaFromPublicHosts", "EgressOpened", "EgressNotOpened")
    return [f for f in plan(service(**spec)).findings if f.reason in found]


def env(*variables: dict[str, Any]) -> dict[str, Any]:
    return {"env": list(variables)}


def test_by_default_public_hosts_stay_open_which_is_told_with_what_enforces_the_rest():
    (finding,) = doors()
    assert (finding.reason, finding.severity) == ("MediaFromPublicHosts", Severity.INFO)
    assert "network plugin enforces" in finding.message
    assert "spec.security.allowedMediaDomains" in finding.message


def test_hosts_that_the_engine_checks_leave_nothing_to_tell():
    assert doors(security=DOMAINS) == []
    assert doors(security={**DOMAINS, "networkPolicy": False}) == []


def test_an_engine_that_cannot_check_hosts_is_told_with_what_is_closed_all_the_same():
    (finding,) = doors(security=DOMAINS, engine={"version": "0.5.17"})
    assert (finding.reason, finding.severity) == ("MediaDomainsNotEnforced", Severity.WARNING)
    assert "0.5.18" in finding.message


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"security": {"networkPolicy": False}}, "spec.security.networkPolicy is false"),
        ({"template": {"spec": {"hostNetwork": True}}}, "hostNetwork"),
    ],
)
def test_without_a_policy_everything_is_open_which_is_a_warning(spec: dict[str, Any], says: str):
    (finding,) = doors(**spec)
    assert (finding.reason, finding.severity) == ("MediaUrlsOpen", Severity.WARNING)
    assert says in finding.message


def test_policies_that_the_whole_operator_makes_none_of_are_told_with_their_switch():
    without = cluster(node(), network_policies=False)
    made = make_plan(request_of(service()), without, runtime_image=RUNTIME_IMAGE)
    (message,) = (f.message for f in made.findings if f.reason == "MediaUrlsOpen")
    assert "services.networkPolicy.enabled" in message


def test_a_proxy_by_name_opens_its_port_wider_than_its_host():
    found = doors(security=DOMAINS, engine=env({"name": "HTTPS_PROXY", "value": "http://proxy.corp:3128"}))
    (finding,) = found
    assert finding.reason == "EgressOpened"
    assert "port 3128" in finding.message
    assert "proxy.corp" in finding.message


@pytest.mark.parametrize("host", ["10.1.2.3:3128", "proxy.net.svc:3128", "http://proxy.net.svc.cluster.local:3128"])
def test_an_address_or_a_service_is_opened_alone_so_nothing_is_told(host: str):
    assert doors(security=DOMAINS, engine=env({"name": "https_proxy", "value": host})) == []


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "HTTPS_PROXY", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}},
        {"name": "HF_ENDPOINT", "value": "https://mirror:port"},
    ],
)
def test_a_way_out_that_cannot_be_read_is_told_since_it_stays_closed(variable: dict[str, Any]):
    (finding,) = doors(security=DOMAINS, engine=env(variable))
    assert (finding.reason, finding.severity) == ("EgressNotOpened", Severity.WARNING)
    assert variable["name"] in finding.message


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "2852039166", "0xa9fea9fe",
     "0251.254.169.254", "169.254.43518", "metadata.google.internal", "Metadata.Google.Internal."],
)  # fmt: skip
def test_a_cloud_s_metadata_service_is_refused_in_any_notation(host: str):
    if not host.endswith("."):
        with pytest.raises(InvalidInput, match=r"spec.security.allowedMediaDomains\[1\]: .* metadata service"):
            plan(service(security={"allowedMediaDomains": ["a.example", host]}))
    with pytest.raises(InvalidInput, match=r"spec.engine.settings.allowed_media_domains: .* metadata service"):
        plan(service(engine={"settings": {"allowed_media_domains": [host]}}))
    with pytest.raises(InvalidInput, match=r"spec.engine.env\[0\]: HTTP_PROXY names"):
        plan(service(engine=env({"name": "HTTP_PROXY", "value": f"http://{host}:80"})))


@pytest.mark.parametrize(
    "host", ["0x00000000a9fea9fe", "000000251.254.169.254", "１６９.254.169.254", "169。254.169.254"]
)
def test_a_metadata_service_in_an_odd_spelling_is_refused_as_a_proxy(host: str):
    with pytest.raises(InvalidInput, match=r"spec.engine.env\[0\]: HTTP_PROXY names"):
        plan(service(engine=env({"name": "HTTP_PROXY", "value": f"http://{host}:80"})))


@pytest.mark.parametrize(
    "host", ["fd00:ec2::254", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
             "::169.254.169.254", "::ffff:0:169.254.169.254", "fe80::1", "fd20:ce::254", "fd00:c1::a9fe:a9fe"],
)  # fmt: skip
def test_a_proxy_at_a_metadata_service_s_ipv6_address_is_refused(host: str):
    container = {"name": "main", "env": [{"name": "https_proxy", "value": f"http://[{host}]:3128"}]}
    with pytest.raises(InvalidInput, match=r"spec.template: https_proxy names .* metadata service"):
        plan(service(template={"spec": {"containers": [container]}}))


@pytest.mark.parametrize(
    ("host", "reason", "says"),
    [
        ("10.9.8.7", "EgressOpened", "ports 80 and 443 of this address"),
        ("0x0a090807", "EgressOpened", "ports 80 and 443 of this address"),
        ("127.1", "EgressOpened", "ports 80 and 443 of this address"),
        ("x.kube-system.svc", "EgressOpened", "every pod of the namespace kube-system"),
        ("x.kube-system.svc.cluster.local", "EgressOpened", "every pod of the namespace kube-system"),
        ("10-0-0-1.team.pod.cluster.local", "EgressNotOpened", "NAME.NAMESPACE.svc"),
        ("web-0.web.team.svc", "EgressNotOpened", "NAME.NAMESPACE.svc"),
        ("pictures", "EgressNotOpened", "NAME.NAMESPACE.svc"),
    ],
)
def test_a_host_of_images_in_the_cluster_is_a_warning(host: str, reason: str, says: str):
    (finding,) = doors(security={"allowedMediaDomains": ["93.184.215.14", host]})
    assert (finding.reason, finding.severity) == (reason, Severity.WARNING)
    assert finding.path == "spec.security.allowedMediaDomains[1]"
    assert says in finding.message
    (finding,) = doors(security={"allowedMediaDomains": [host], "networkPolicy": False})
    assert finding.reason == "EgressOpened"
    assert "the NetworkPolicy opens" not in finding.message
