"""The router of a service: as it is wanted, whose the service's address is meanwhile, or why there can be none."""

from typing import Final, NamedTuple

from vlm_api import reasons
from vlm_api.names import ROUTER
from vlm_operator import manifests as render
from vlm_operator.controller.service.choose import Choices
from vlm_operator.controller.service.gather import LiveService, pool_of
from vlm_operator.controller.status.observation import Problem
from vlm_operator.controller.status.replicas import replicas
from vlm_operator.errors import InvalidInput
from vlm_operator.fleet.router import RoutedPool, plan_router
from vlm_operator.kube import kinds
from vlm_operator.kube.client import Json
from vlm_operator.manifests.router import router_name, router_selector, router_template

# What decides who reaches the engines. While a router is refused, it stays as it is, as do the routers that there are.
ENTRANCE: Final = (kinds.SERVICE.kind, kinds.NETWORK_POLICY.kind)


class RouterChoice(NamedTuple):
    """What was decided about the router; neither part if the spec has none."""

    part: render.RouterPart | None = None
    problem: Problem | None = None
    """Why it is refused."""

    def keeps(self, live: Json) -> bool:
        """Whether an object stays as it is because the router is refused."""
        return self.problem is not None and (live["kind"] in ENTRANCE or pool_of(live["metadata"]) == ROUTER)


def choose_router(live: LiveService, choices: Choices) -> RouterChoice:
    """The router of the service."""
    service, router = live.service.name, live.pools[0].request.router
    if router is None:
        return RouterChoice()
    plans = [c.applicable or p.stored for p, c in zip(live.pools, choices.pools, strict=True)]
    pools = [RoutedPool(p.request, s.plan if s is not None else None) for p, s in zip(live.pools, plans, strict=True)]
    plan = plan_router(router, pools)
    if plan.errors:
        return RouterChoice(problem=Problem(plan.errors[0].reason, plan.errors[0].message))
    try:
        router_template(plan, pools, service, router.template)
    except InvalidInput as error:
        return RouterChoice(problem=Problem(reasons.INVALID_SPEC, str(error)))
    owned = {(o["kind"], o["metadata"]["name"]): o for o in live.owned}
    address = owned.get((kinds.SERVICE.kind, service))
    # A Service that reaches engines goes on doing so until a router is ready, and engines are closed to others only after it.
    closed = address is None or address["spec"].get("selector") == router_selector(service)
    ready = replicas(owned.get((kinds.DEPLOYMENT.kind, router_name(service)))).available > 0
    return RouterChoice(render.RouterPart(plan, pools, answers=closed or ready, closed=closed))
