"""A plan and a service in, manifests out. Pure: no cluster, no clock, and the same input gives the same bytes."""

from vlm_operator.render.digest import plan_hash, stored
from vlm_operator.render.inspection import inspection_digest, inspection_job
from vlm_operator.render.network import USUAL_SITE, Site, network_policy
from vlm_operator.render.objects import objects, policy_before_plan
from vlm_operator.render.pod import engine_scheme, pod_template

__all__ = [
    "USUAL_SITE",
    "Site",
    "engine_scheme",
    "inspection_digest",
    "inspection_job",
    "network_policy",
    "objects",
    "plan_hash",
    "pod_template",
    "policy_before_plan",
    "stored",
]
