"""What a router does follows from the declared traffic and from its pools' plans, with a reason."""

from typing import Any

import pytest
from unit.plan.builders import REFERENCE_WORKLOAD, RUNTIME_IMAGE, cluster, node, service

from vlm_api.plan import RouterPlan
from vlm_operator.fleet.envoy import Routing, bootstrap
from vlm_operator.fleet.router import RoutedPool, plan_router, routing_of
from vlm_operator.manifests import pod_template
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.request import requests_of


def planned(*pools: dict[str, Any], router: dict[str, Any] | None = None, **spec: Any) -> tuple[RouterPlan, Routing]:
    """The router of a service with these pools on H100s, planned and as Envoy is configured."""
    requests = requests_of(service(router=router or {}, **({"pools": list(pools)} if pools else {}), **spec))
    routed = [RoutedPool(r, make_plan(r, cluster(node()), runtime_image=RUNTIME_IMAGE)) for r in requests]
    assert requests[0].router is not None
    plan = plan_router(requests[0].router, routed)
    return plan, routing_of(plan, routed)


def workload(reuse: str) -> dict[str, Any]:
    return REFERENCE_WORKLOAD | {"images": REFERENCE_WORKLOAD["images"] | {"reuse": reuse}}


@pytest.mark.parametrize(
    ("affinity", "reuse", "by_image"),
    [
        ("Auto", "SingleUse", False),
        ("Auto", "Unknown", False),
        ("Auto", "Repeated", True),
        ("Image", "SingleUse", True),
        ("None", "Repeated", False),
    ],
)
def test_images_are_followed_where_they_repeat_or_the_user_says_so(affinity: str, reuse: str, by_image: bool) -> None:
    plan, routing = planned(router={"affinity": affinity}, workload=workload(reuse))
    assert routing.by_image is by_image
    (setting,) = [s for s in plan.settings if s.name == "affinity"]
    assert setting.source.value == ("workload" if affinity == "Auto" else "user")


def test_each_replica_weighs_what_its_plan_runs_at_once_whatever_their_number() -> None:
    main = {"name": "main", "replicas": 7}
    _, routing = planned(main, {"name": "small", "concurrency": 64})
    assert {b.pool: b.weight for b in routing.backends} == {"main": 25, "small": 4}
    assert not routing.shares
    _, other = planned({**main, "replicas": 2}, {"name": "small", "concurrency": 64})
    assert other.backends == routing.backends


def test_weights_of_the_user_are_shares_of_pools() -> None:
    _, routing = planned({"name": "main", "weight": 90}, {"name": "next", "weight": 10, "concurrency": 8})
    assert {b.pool: b.weight for b in routing.backends} == {"main": 90, "next": 10}
    assert routing.shares


def test_without_a_known_concurrency_all_replicas_weigh_the_same() -> None:
    plan, routing = planned({"name": "a"}, {"name": "b"}, workload={})
    assert {b.weight for b in routing.backends} == {1}
    assert "not known" in next(s.reason for s in plan.settings if s.name == "weights")


def test_memory_grows_with_images_and_requests_and_holds_two_of_the_largest_bodies() -> None:
    images = {"perRequest": 4, "width": 1920, "height": 1080}
    least, _ = planned(workload={"concurrency": 1})
    most, routing = planned(workload={"concurrency": 400, "images": images})
    memory = [next(s.value for s in plan.settings if s.name == "memoryMiB") for plan in (least, most)]
    assert memory[0] >= 2 * 64
    assert memory[1] > 10 * memory[0]
    assert routing.memory_mib == memory[1]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"engine": {"args": ["--ssl-certfile=/tls/tls.crt", "--ssl-keyfile=/tls/tls.key"]}}, "RouterNeedsHttp"),
        (
            {
                "router": {"affinity": "Image"},
                "engine": {"settings": {"disable_radix_cache": True, "SGLANG_VLM_CACHE_SIZE_MB": 0}},
            },
            "NoCacheToMeet",
        ),
        ({"router": {"affinity": "Image"}, "engine": {"settings": {"disable_radix_cache": True}}}, None),
    ],
)
def test_what_a_router_cannot_do_is_refused(spec: dict[str, Any], reason: str | None) -> None:
    plan, _ = planned(workload=workload("Repeated"), **spec)
    assert [error.reason for error in plan.errors] == ([reason] if reason else [])


def test_an_engine_is_asked_for_its_readiness_where_the_kubelet_asks() -> None:
    request = requests_of(service(router={}))[0]
    plan = make_plan(request, cluster(node()), runtime_image=RUNTIME_IMAGE)
    (main,) = [c for c in pod_template(plan, request)["spec"]["containers"] if c["name"] == "main"]
    probe = main["readinessProbe"]["httpGet"]
    (ports,) = [[p["containerPort"] for p in main["ports"] if p["name"] == probe["port"]]]
    (engines,) = [c for c in bootstrap(planned()[1])["static_resources"]["clusters"] if c["name"] == "engines"]
    (endpoint,) = engines["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert engines["health_checks"][0]["http_health_check"]["path"] == probe["path"]
    assert [endpoint["endpoint"]["health_check_config"]["port_value"]] == ports
