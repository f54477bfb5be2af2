"""The router of a service on the real API server: its objects, when the address becomes its own, and what it leaves alone."""

import json
from typing import Any

import pytest
from apiserver.operating import TRAFFIC, World, eventually

NODES = ("hopper",)
pytestmark = pytest.mark.usefixtures("operator")

TO_ROUTERS = {"vlmserve.dev/service": "vlm", "vlmserve.dev/component": "router"}


def selector(world: World) -> dict[str, Any]:
    return dict(world.get("service")["spec"]["selector"])


def open_to_all(world: World) -> list[int]:
    """The ports of the engines that anybody may connect to."""
    rules = world.get("networkpolicy", "vlm-vlm")["spec"]["ingress"]
    return [port["port"] for rule in rules if "from" not in rule for port in rule["ports"]]


def test_a_new_service_with_a_router_has_it_before_its_engines(world: World):
    world.apply(workload=TRAFFIC, router={})
    router = eventually(lambda: world.get("deployment", "vlm-router"))
    assert selector(world) == TO_ROUTERS
    assert selector(world).items() <= router["spec"]["template"]["metadata"]["labels"].items()
    (container,) = router["spec"]["template"]["spec"]["containers"]
    config = json.loads(container["args"][1])
    (engines,) = [c for c in config["static_resources"]["clusters"] if c["name"] == "engines"]
    host = engines["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert host["address"] == f"vlm-vlm-main.{world.namespace}.svc"
    headless = world.get("service", "vlm-vlm-main")["spec"]
    labels = world.get("deployment")["spec"]["template"]["metadata"]["labels"]
    assert headless["clusterIP"] == "None"
    assert headless["selector"].items() <= labels.items()
    assert not headless["selector"].items() <= router["spec"]["template"]["metadata"]["labels"].items()
    assert world.exists("pdb", "vlm-router-vlm")


def test_available_needs_an_engine_and_a_router(world: World):
    world.apply(workload=TRAFFIC, router={})
    eventually(lambda: world.get("deployment", "vlm-router"))
    world.serving()
    assert "0 of 2 routers are ready" in world.wait_for("False", "RouterNotReady", "Available")
    world.wait_for("False", "RouterNotReady")
    world.serving("vlm-router", replicas=2)
    world.wait_for("True", "Serving")


def test_a_router_that_is_added_takes_the_address_once_it_is_ready_and_replaces_no_engine(world: World):
    world.starts()
    world.serving()
    world.wait_for("True", "Serving")
    plan, engines = world.plan_hash(), selector(world)
    world.apply(workload=TRAFFIC, router={"affinity": "Image"})
    eventually(lambda: world.get("deployment", "vlm-router"))
    assert selector(world) == engines
    assert 8000 in open_to_all(world)  # whoever enforces the policy would cut off what serves
    world.wait_for("True", "Serving")
    world.serving("vlm-router", replicas=2)
    eventually(lambda: selector(world) == TO_ROUTERS)
    world.wait_for("True", "Serving")
    world.serving("vlm-router", replicas=1)
    eventually(lambda: 8000 not in open_to_all(world))
    world.apply(workload=TRAFFIC)
    eventually(lambda: not world.exists("deployment", "vlm-router"))
    assert selector(world) == engines
    assert not world.exists("service", "vlm-vlm-main")
    assert not world.exists("pdb", "vlm-router-vlm")
    assert world.plan_hash() == plan


def test_engines_take_requests_from_the_router_only(world: World):
    world.apply(workload=TRAFFIC, router={})
    spec = eventually(lambda: world.get("networkpolicy", "vlm-vlm"))["spec"]
    opened = [rule for rule in spec["ingress"] if 8000 in [port["port"] for port in rule["ports"]]]
    assert [peer["podSelector"]["matchLabels"] for rule in opened for peer in rule["from"]] == [
        TO_ROUTERS,
        {"vlmserve.dev/measured": "vlm"},
    ]
    routers = world.get("networkpolicy", "vlm-router-vlm")["spec"]
    assert routers["podSelector"]["matchLabels"] == TO_ROUTERS


def test_a_router_that_cannot_be_is_told_and_what_serves_stays(world: World):
    world.starts()
    world.serving()
    world.wait_for("True", "Serving")
    engines = selector(world)
    off = {"settings": {"disable_radix_cache": True, "SGLANG_VLM_CACHE_SIZE_MB": 0}}
    world.apply(workload=TRAFFIC, router={"affinity": "Image"}, engine=off)
    assert "every cache is off" in world.wait_for("False", "NoCacheToMeet")
    assert not world.exists("deployment", "vlm-router")
    assert selector(world) == engines


def test_a_template_that_no_router_can_have_is_told_with_its_field_and_what_serves_stays(world: World):
    world.starts()
    world.serving()
    world.wait_for("True", "Serving")
    before = world.get("service"), world.get("networkpolicy", "vlm-vlm")
    world.apply(
        workload=TRAFFIC, router={"template": {"spec": {"containers": [{"name": "router", "$patch": "delete"}]}}}
    )
    assert "spec.router.template.spec.containers" in world.wait_for("False", "InvalidSpec")
    assert not world.exists("deployment", "vlm-router")
    assert (world.get("service"), world.get("networkpolicy", "vlm-vlm")) == before


def test_shares_of_pools_follow_their_weights(world: World):
    pools = [{"name": "main", "weight": 90}, {"name": "next", "weight": 10, "concurrency": 8}]
    world.apply(workload=TRAFFIC, router={}, pools=pools)
    router = eventually(lambda: world.get("deployment", "vlm-router"))
    text = router["spec"]["template"]["spec"]["containers"][0]["args"][1]
    route = json.loads(text)["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    clusters = route["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["weighted_clusters"]["clusters"]
    assert {c["name"]: c["weight"] for c in clusters} == {"engines-main": 90, "engines-next": 10}


def test_a_quiet_service_with_a_router_costs_no_write(world: World):
    world.apply(workload=TRAFFIC, router={})
    eventually(lambda: world.exists("deployment", "vlm-router") and world.exists("service", "vlm-vlm-main"))
    before = eventually(lambda: world.versions())
    world("label", "vlms/vlm", "example.com/look=again")
    eventually(lambda: world.get("vlms")["metadata"]["labels"])
    world("delete", "pdb", "vlm-router-vlm")
    eventually(lambda: world.exists("pdb", "vlm-router-vlm"))
    after = world.versions()
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {"VLMService/vlm", "PodDisruptionBudget/vlm-router-vlm"}
