"""Several pools of one service on the real API server: each has objects of its own, and none touches another's pods."""

from collections.abc import Callable
from typing import Any

import pytest
from apiserver.operating import TRAFFIC, World, eventually

NODES = ("hopper",)
pytestmark = pytest.mark.usefixtures("operator")

Vlm = Callable[..., str]

MAIN = {"name": "main", "replicas": 2}
SMALL = {"name": "small", "concurrency": 8}


def pools(world: World, name: str = "vlm") -> dict[str, dict[str, Any]]:
    return {pool["name"]: pool for pool in world.get("vlms", name)["status"]["pools"]}


def apply(world: World, *of_pools: dict[str, Any], **spec: Any) -> None:
    world.apply(workload=TRAFFIC, pools=list(of_pools), **spec)


def test_each_pool_has_a_plan_and_a_deployment_and_one_service_reaches_them_all(world: World):
    apply(world, MAIN, SMALL)
    main, small = (eventually(lambda name=name: world.get("deployment", name)) for name in ("vlm", "vlm-small"))
    assert (main["spec"]["replicas"], small["spec"]["replicas"]) == (2, 1)
    labels = small["spec"]["template"]["metadata"]["labels"]
    assert world.get("service")["spec"]["selector"].items() <= labels.items()
    assert labels["vlmserve.dev/pool"] == "small"
    eventually(lambda: len(pools(world)) == 2)
    assert pools(world)["small"]["plan"] == labels["vlmserve.dev/plan"]
    assert world.exists("configmap", f"vlm-plan-{labels['vlmserve.dev/plan']}")
    # Only a pool of several replicas can lose one.
    assert world.exists("pdb", "vlm-vlm")
    assert not world.exists("pdb", "vlm-small-vlm")


def test_the_service_is_ready_once_all_pools_are_and_names_the_one_that_is_not(world: World):
    apply(world, MAIN, SMALL)
    eventually(lambda: world.get("deployment", "vlm-small"))
    world.serving("vlm", replicas=2)
    eventually(lambda: "pool small: " in world.condition()[2])
    assert world.condition("Available")[:2] == ("True", "ReplicasAvailable")
    world.serving("vlm-small")
    world.wait_for("True", "Serving")
    status = world.get("vlms")["status"]
    assert (status["desiredReplicas"], status["readyReplicas"]) == (3, 3)


def test_adding_changing_and_removing_a_pool_touches_nothing_of_another(world: World):
    world.starts(replicas=2)
    main, plan = world.get("deployment"), world.plan_hash()
    apply(world, MAIN, SMALL)
    eventually(lambda: world.exists("deployment", "vlm-small"))
    first = eventually(lambda: pools(world)["small"]["plan"])
    apply(world, MAIN, {**SMALL, "concurrency": 9})
    eventually(lambda: pools(world)["small"]["plan"] not in ("", first))
    apply(world, MAIN)
    eventually(lambda: not world.exists("deployment", "vlm-small"))
    eventually(lambda: list(pools(world)) == ["main"])
    now = world.get("deployment")
    assert (now["metadata"]["uid"], now["metadata"]["generation"]) == (
        main["metadata"]["uid"],
        main["metadata"]["generation"],
    )
    assert world.plan_hash() == plan


def test_a_pool_that_cannot_run_is_told_and_the_others_serve(world: World):
    apply(world, MAIN, {"name": "l40s", "hardware": {"products": ["NVIDIA-L40S"]}})
    eventually(lambda: world.exists("deployment"))
    world.serving("vlm", replicas=2)
    world.wait_for("True", "ReplicasAvailable", "Available")
    assert "pool l40s: " in world.condition()[2]
    assert pools(world)["main"]["reason"] == "Serving"


def test_a_pool_whose_fields_do_not_go_together_leaves_every_pod_as_it_is(world: World):
    apply(world, MAIN, SMALL)
    before = {name: eventually(lambda name=name: world.get("deployment", name)) for name in ("vlm", "vlm-small")}
    apply(world, MAIN, {**SMALL, "model": {"name": "other"}})
    message = world.wait_for("False", "InvalidSpec")
    assert "spec.pools[1].model.name" in message
    for name, deployment in before.items():
        assert world.get("deployment", name)["metadata"]["generation"] == deployment["metadata"]["generation"]
    assert set(pools(world)) == {"main", "small"}


def test_the_scale_subresource_of_a_service_with_pools_refuses(world: World):
    apply(world, MAIN, SMALL)
    with pytest.raises(Exception, match=r"move them into spec\.pools"):
        world("scale", "vlms/vlm", "--replicas=3")


def test_a_pool_s_own_autoscaler_scales_its_own_deployment(world: World):
    apply(world, MAIN, {**SMALL, "scaling": {"maxReplicas": 4}})
    scaler = eventually(lambda: world.get("hpa", "vlm-small"))
    assert scaler["spec"]["scaleTargetRef"]["name"] == "vlm-small"
    assert not world.exists("hpa", "vlm")
    world("scale", "deployment/vlm-small", "--replicas=3")
    eventually(lambda: pools(world)["small"]["desiredReplicas"] == 3)


def test_what_a_pool_has_proved_becomes_what_main_says_and_rollback_undoes_it(world: World, kubectl_vlm: Vlm):
    apply(world, MAIN, SMALL)
    eventually(lambda: len(pools(world)) == 2)
    assert "-  - concurrency: 8" in kubectl_vlm("promote", "vlm", "small", "--dry-run")
    assert "vlm has no pool large: choose one of main, small" in kubectl_vlm("promote", "vlm", "large", code=2)
    kubectl_vlm("promote", "vlm", "small")
    eventually(lambda: list(pools(world)) == ["main"])
    assert world.get("vlms")["spec"]["pools"] == [{"name": "main", "replicas": 2, "concurrency": 8}]
    kubectl_vlm("rollback", "vlm")
    eventually(lambda: list(pools(world)) == ["main", "small"])
    assert world.get("vlms")["spec"]["pools"] == [MAIN, {"name": "small", "concurrency": 8}]


def test_people_see_pools_beside_each_other_and_each_plan_by_itself(world: World, kubectl_vlm: Vlm):
    apply(world, MAIN, SMALL)
    eventually(lambda: len(pools(world)) == 2 and pools(world)["small"]["plan"])
    table = kubectl_vlm("status", "vlm")
    assert [line.split()[0] for line in table.partition("\nPools\n")[2].splitlines()[1:3]] == ["main", "small"]
    assert f"pool small  plan {pools(world)['small']['plan']}" in kubectl_vlm("explain", "vlm", "--pool", "small")
    assert f"pool main  plan {pools(world)['main']['plan']}" in kubectl_vlm("explain", "vlm")
    assert "vlm has no pool large: choose one of main, small" in kubectl_vlm(
        "explain", "vlm", "--pool", "large", code=2
    )
