"""Plans and requests in, manifests out. Pure: no cluster, no clock, and the same input gives the same bytes."""

from vlm_operator.manifests.inspection import inspection_digest, inspection_job
from vlm_operator.manifests.network.policy import network_policy
from vlm_operator.manifests.network.site import USUAL_SITE, Site
from vlm_operator.manifests.objects import Pool, RouterPart, objects, policy_before_plan, pool_objects, service_objects
from vlm_operator.manifests.pod.template import engine_scheme, pod_template
from vlm_operator.plan.digest import plan_hash, stored

__all__ = [
    "USUAL_SITE", "Pool", "RouterPart", "Site", "engine_scheme", "inspection_digest", "inspection_job", "network_policy",
    "objects", "plan_hash", "pod_template", "policy_before_plan", "pool_objects", "service_objects", "stored",
]  # fmt: skip
