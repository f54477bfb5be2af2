"""A plan and a service in, manifests out. Pure: no cluster, no clock, and the same input gives the same bytes."""

from vlm_operator.render.digest import plan_hash
from vlm_operator.render.inspection import inspection_digest, inspection_job
from vlm_operator.render.objects import objects
from vlm_operator.render.pod import pod_template

__all__ = ["inspection_digest", "inspection_job", "objects", "plan_hash", "pod_template"]
