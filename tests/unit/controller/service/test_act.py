"""Which objects of several pools are applied and removed."""

from dataclasses import replace
from typing import Any

import pytest
from unit.controller.live import KEY, RAW
from unit.manifests.samples import plan, sealed, service
from unit.plan.builders import request_of

from vlm_api.plan import Finding, Severity
from vlm_operator import manifests as render
from vlm_operator.controller.service.act import unwanted, wanted
from vlm_operator.controller.service.choose import Choices, PoolChoice
from vlm_operator.controller.service.gather import LivePool, LiveService
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.manifests.objects import Pool
from vlm_operator.plan.stored import StoredPlan

OF = service(metadata=RAW["metadata"])


def pool(name: str) -> Pool:
    finished, template = sealed(plan(pool=name), OF)
    return Pool(finished, template, replace(request_of(OF), pool=name))


MAIN, L40S, GONE = pool("main"), pool("l40s"), pool("gone")
LIVE: list[dict[str, Any]] = render.objects([MAIN, L40S, GONE], owner_reference(RAW))


def stored(of: Pool) -> StoredPlan:
    return StoredPlan(of.plan, of.pod_template)


def live_with(*pools: Pool) -> LiveService:
    found = tuple(LivePool(p.request, stored=stored(p)) for p in pools)
    return LiveService(KEY, RAW, OF, pools=found, labelled=LIVE)


def titles(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(f"{o['kind']}/{o['metadata']['name']}".partition("-plan-")[0] for o in objects)


@pytest.mark.parametrize(
    ("main", "l40s", "applied", "removed"),
    [
        (
            PoolChoice(stored(MAIN)),
            PoolChoice(stored(L40S)),
            [
                "ConfigMap/vlm",
                "ConfigMap/vlm",
                "Deployment/vlm",
                "Deployment/vlm-l40s",
                "NetworkPolicy/vlm-vlm",
                "Service/vlm",
            ],
            ["ConfigMap/vlm", "Deployment/vlm-gone"],
        ),
        (
            PoolChoice(stored(MAIN)),
            PoolChoice(),
            ["ConfigMap/vlm", "Deployment/vlm", "Deployment/vlm-l40s", "NetworkPolicy/vlm-vlm", "Service/vlm"],
            ["ConfigMap/vlm", "Deployment/vlm-gone"],
        ),
        (PoolChoice(), PoolChoice(), ["Deployment/vlm", "Deployment/vlm-l40s"], []),
    ],
    ids=["both planned", "one held", "both held, as with an invalid spec"],
)
def test_a_pool_without_a_new_plan_is_only_scaled_and_a_pool_that_is_gone_is_removed(
    main: PoolChoice, l40s: PoolChoice, applied: list[str], removed: list[str]
) -> None:
    live, choices = live_with(MAIN, L40S), Choices((main, l40s))
    manifests = wanted(live, choices, render.USUAL_SITE)
    assert titles(manifests) == applied
    assert titles(unwanted(live, choices, manifests)) == removed


def forbidden(of: Pool) -> PoolChoice:
    """The plan in force, whose scale is refused."""
    error = Finding(severity=Severity.ERROR, reason="ClaimForOnePod", about="Resources", message="one", path="spec")
    return PoolChoice(stored(of), plan_reused=True, shown=of.plan.model_copy(update={"findings": [error]}))


@pytest.mark.parametrize(("asked", "given"), [(3, 2), (1, 1)])
def test_of_a_scale_that_is_forbidden_only_the_number_is_not_applied(asked: int, given: int) -> None:
    request = request_of(service(metadata=RAW["metadata"], replicas=asked, rolloutStrategy={"maxUnavailable": 2}))
    live = live_with(MAIN)
    (deployment,) = [o for o in LIVE if o["kind"] == "Deployment" and o["metadata"]["name"] == "vlm"]
    workload = {**deployment, "spec": {**deployment["spec"], "replicas": 2}}
    live = replace(live, pools=(LivePool(request, workload=workload, stored=stored(MAIN)),))
    manifests = wanted(live, Choices((forbidden(MAIN),)), render.USUAL_SITE)
    (applied,) = [o for o in manifests if o["kind"] == "Deployment"]
    assert applied["spec"]["replicas"] == given
    assert applied["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 2


def test_an_autoscaler_whose_minimum_is_forbidden_stays_as_it_is() -> None:
    scaling = {"minReplicas": 2, "maxReplicas": 3, "targetInFlight": 8}
    request = request_of(service(metadata=RAW["metadata"], scaling=scaling))
    (deployment,) = [o for o in LIVE if o["kind"] == "Deployment" and o["metadata"]["name"] == "vlm"]
    (scaler,) = [
        o for o in render.objects([MAIN._replace(request=request)], owner_reference(RAW)) if "Autoscaler" in o["kind"]
    ]
    live = live_with(MAIN)
    pools = (LivePool(request, workload=deployment, stored=stored(MAIN), autoscaler=scaler),)
    live = replace(live, pools=pools, labelled=[*LIVE, scaler])
    choices = Choices((forbidden(MAIN),))
    manifests = wanted(live, choices, render.USUAL_SITE)
    assert "HorizontalPodAutoscaler" not in [o["kind"] for o in manifests]
    assert scaler not in unwanted(live, choices, manifests)
