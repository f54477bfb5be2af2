"""The NetworkPolicy, evaluated as a network plugin does: may this pod open a connection there?"""

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

import pytest
from unit.manifests.samples import objects, plan, service
from unit.plan.builders import request_of

from vlm_api.plan import PlanResources, Setting, Source
from vlm_operator.manifests import USUAL_SITE, Site, inspection_job, network_policy, policy_before_plan

OWNER = {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "name": "vlm", "uid": "u", "controller": True}
HUB, LOCAL = {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}, {"uri": "pvc://models/qwen"}
METADATA = ["169.254.169.254", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192"]
METADATA += ["fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe", "64:ff9b::a9fe:a9fe"]
INSIDE = ["10.96.0.1", "172.20.0.10", "192.168.1.1", "100.64.0.7", "127.0.0.1", "fd12::1", "fe80::1", "::1"]
DISGUISED = ["::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a00:1::1"]
PUBLIC = ["93.184.215.14", "172.32.0.1", "11.0.0.1", "2606:2800:21f::1", "64:ff9b::93.184.215.14"]


def spec_of(site: Site = USUAL_SITE, enforced: bool = False, **spec: Any) -> dict[str, Any]:
    policy = network_policy([request_of(service(**spec))], site, domains_enforced=enforced)
    return policy["spec"]


def reaches(policy: dict[str, Any], address: str, port: int, protocol: str = "TCP") -> bool:
    """Whether egress to an address outside of what selectors name is allowed."""
    return any(
        _port_matches(rule, port, protocol)
        and ("to" not in rule or any(_in_block(peer["ipBlock"], address) for peer in rule["to"] if "ipBlock" in peer))
        for rule in policy["egress"]
    )


def _port_matches(rule: dict[str, Any], port: int, protocol: str) -> bool:
    return "ports" not in rule or any((p["protocol"], p["port"]) == (protocol, port) for p in rule["ports"])


def _in_block(block: dict[str, Any], address: str) -> bool:
    where = ip_address(address)
    if isinstance(where, IPv6Address) and where.ipv4_mapped:
        where = where.ipv4_mapped  # as it leaves the pod
    return where in ip_network(block["cidr"]) and not any(where in ip_network(e) for e in block.get("except", ()))


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) == {"matchLabels"}
    return bool(selector["matchLabels"].items() <= labels.items())


def admits(policy: dict[str, Any], port: int, peer: dict[str, str]) -> bool:
    """Whether a pod of the same namespace with these labels may open a connection to that port."""
    return any(
        _port_matches(rule, port, "TCP")
        and ("from" not in rule or any(selects(p["podSelector"], peer) for p in rule["from"]))
        for rule in policy["ingress"]
    )


def test_it_selects_the_pods_of_the_engine_and_the_inspection_and_of_no_other_service():
    made = objects(plan(), service())
    selector = made["NetworkPolicy"]["spec"]["podSelector"]
    engine = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    job = inspection_job(request_of(service()), "operator:1", OWNER)["spec"]["template"]["metadata"]["labels"]
    other = objects(plan("vlm-2"), service("vlm-2"))["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert [selects(selector, labels) for labels in (engine, job, other)] == [True, True, False]


@pytest.mark.parametrize("address", METADATA + INSIDE + DISGUISED)
@pytest.mark.parametrize("port", [80, 443, 8080])
def test_no_url_leads_into_the_cluster_or_to_a_cloud_s_credentials(address: str, port: int):
    assert not reaches(spec_of(), address, port)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_images_and_the_hub_are_reached_on_the_web_s_ports_only(address: str):
    assert reaches(spec_of(), address, 443)
    assert reaches(spec_of(), address, 80)
    assert not reaches(spec_of(), address, 22)


@pytest.mark.parametrize("address", ["10.96.0.10", "169.254.20.10", "fd00::10"])
def test_names_are_resolved_wherever_the_cluster_s_dns_is(address: str):
    assert reaches(spec_of(), address, 53, "UDP")
    assert reaches(spec_of(), address, 53, "TCP")


def test_clients_and_prometheus_reach_their_ports_and_nobody_reaches_another():
    stranger = {"app": "client"}
    made = spec_of()
    assert [admits(made, port, stranger) for port in (8000, 8001, 20000, 34567)] == [True, True, False, False]


def test_ports_of_the_user_s_own_containers_stay_open():
    sidecar = {
        "name": "proxy",
        "image": "envoy",
        "ports": [{"containerPort": 9901}, {"containerPort": 53, "protocol": "UDP"}],
    }
    made = objects(plan(), service(template={"spec": {"containers": [{"name": "main"}, sidecar]}}))
    ports = made["NetworkPolicy"]["spec"]["ingress"][0]["ports"]
    assert {"protocol": "TCP", "port": 9901} in ports
    assert {"protocol": "UDP", "port": 53} in ports
    assert {"protocol": "TCP", "port": 8000} in ports


def test_pods_of_a_group_reach_each_other_on_any_port_and_nobody_else_does():
    of = service(parallelism={"tensor": 2}, multinode={"nodeCount": 2})
    made = objects(plan(resources=PlanResources(devices_per_pod=1, pods=2)), of)
    policy = made["NetworkPolicy"]["spec"]
    member = made["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["labels"]
    assert admits(policy, 20000, member)
    assert admits(policy, 34567, member)
    assert not admits(policy, 20000, {"app": "client"})
    (out,) = (rule for rule in policy["egress"] if "to" in rule and "podSelector" in rule["to"][0])
    assert "ports" not in out
    assert selects(out["to"][0]["podSelector"], member)


def test_a_local_model_and_images_from_inside_need_no_public_address():
    domains = {"allowedMediaDomains": ["10.9.8.7", "pictures.media.svc"]}
    made = spec_of(enforced=True, model=LOCAL, security=domains)
    assert [reaches(made, "10.9.8.7", port) for port in (80, 443, 9000)] == [True, True, False]
    assert not reaches(made, "10.9.8.8", 443)
    assert all(r["ports"] == made["egress"][-1]["ports"] for r in made["egress"][1:]), "of a Service as well"
    assert not reaches(made, PUBLIC[0], 443)
    namespaces = [p["namespaceSelector"] for r in made["egress"] for p in r.get("to", []) if "namespaceSelector" in p]
    assert namespaces == [{"matchLabels": {"kubernetes.io/metadata.name": "media"}}]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": HUB}, "the model comes from the hub"),
        ({"enforced": False}, "the engine does not check"),
        ({"security": {"allowedMediaDomains": ["10.9.8.7", "images.example.com"]}}, "a public host is listed"),
        ({"security": {}}, "every public host is open"),
    ],
)
def test_public_addresses_stay_open_if_needed(changes: dict[str, Any], why: str):
    closed: dict[str, Any] = {"enforced": True, "model": LOCAL, "security": {"allowedMediaDomains": ["10.9.8.7"]}}
    assert not reaches(spec_of(**closed), PUBLIC[0], 443)
    assert reaches(spec_of(**{**closed, **changes}), PUBLIC[0], 443), why


def with_variable(name: str, value: str) -> dict[str, Any]:
    return spec_of(engine={"env": [{"name": name, "value": value}]})


def test_a_proxy_s_address_is_opened_with_its_port_and_no_other():
    made = with_variable("HTTPS_PROXY", "http://user:word@10.1.1.1:3128")
    assert reaches(made, "10.1.1.1", 3128)
    assert not reaches(made, "10.1.1.1", 22)
    assert not reaches(made, "10.1.1.2", 3128)


@pytest.mark.parametrize(
    ("value", "port"),
    [("proxy.corp:3128", 3128), ("http://mirror.corp", 80), ("https://mirror.corp/hf", 443), ("socks5://s.corp", 1080)],
)
def test_a_name_is_opened_by_its_port_to_everything_but_a_cloud_s_credentials(value: str, port: int):
    made = with_variable("HF_ENDPOINT", value)
    assert reaches(made, "10.1.1.1", port)
    assert not any(reaches(made, address, port) for address in METADATA)


@pytest.mark.parametrize("host", [*METADATA, "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "::ffff:a9fe:a9fe"])
def test_no_field_opens_a_cloud_s_credentials(host: str):
    """Also of a plan that was stored before such a host was refused."""
    url = f"http://[{host}]:80" if ":" in host else f"http://{host}:80"
    assert with_variable("HTTP_PROXY", url) == spec_of()
    if ":" not in host:
        made = spec_of(enforced=True, model=LOCAL, security={"allowedMediaDomains": [host]})
        assert not any(reaches(made, address, port) for address in METADATA for port in (80, 443, 8080))


def test_an_address_in_another_notation_is_opened_as_what_it_is():
    made = spec_of(enforced=True, model=LOCAL, security={"allowedMediaDomains": ["0x0a090807"]})
    assert reaches(made, "10.9.8.7", 443)
    assert not reaches(made, PUBLIC[0], 443)


def test_a_proxy_in_the_template_has_precedence_over_the_engine_s_environment():
    container = {"name": "main", "env": [{"name": "HTTP_PROXY", "value": "http://10.2.2.2:8080"}]}
    engine = {"env": [{"name": "HTTP_PROXY", "value": "http://10.1.1.1:8080"}]}
    made = spec_of(engine=engine, template={"spec": {"containers": [container]}})
    assert reaches(made, "10.2.2.2", 8080)
    assert not reaches(made, "10.1.1.1", 8080)


def test_other_variables_open_nothing():
    assert with_variable("NCCL_SOCKET_IFNAME", "http://10.1.1.1:3128") == spec_of()


def test_the_site_s_own_rules_are_added_as_the_api_server_completes_them():
    rule = {"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}], "ports": [{"port": 9000}]}
    made = spec_of(Site(extra_egress=(rule,)))
    assert made["egress"][-1] == {**rule, "ports": [{"protocol": "TCP", "port": 9000}]}
    assert reaches(made, "10.20.1.1", 9000)


@pytest.mark.parametrize(
    ("site", "security"), [(Site(network_policies=False), {}), (Site(), {"networkPolicy": False})], ids=["all", "one"]
)
def test_it_can_be_switched_off(site: Site, security: dict[str, Any]):
    assert network_policy([request_of(service(security=security))], site) is None
    assert policy_before_plan([request_of(service(security=security))], OWNER, site) == []


def test_the_inspection_job_has_its_policy_before_there_is_a_plan():
    (made,) = policy_before_plan([request_of(service())], OWNER, Site())
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert made["metadata"]["namespace"] == "default"
    assert made["spec"] == objects(plan(), service())["NetworkPolicy"]["spec"]


def test_the_plan_s_setting_decides_whether_the_engine_checks_hosts():
    of = service(model=LOCAL, security={"allowedMediaDomains": ["10.9.8.7"]})
    setting = Setting(
        name="allowed_media_domains", value=["10.9.8.7"], applied=True, source=Source.USER, rule="r", reason="r"
    )
    for settings, open_ in (([setting], False), ([setting.model_copy(update={"applied": False})], True)):
        made = objects(plan(settings=settings), of)["NetworkPolicy"]["spec"]
        assert reaches(made, PUBLIC[0], 443) is open_
