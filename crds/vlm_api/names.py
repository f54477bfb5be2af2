"""Names that the operator, the runtime, manifests and dashboards share. Changing one is a breaking change."""

from typing import Final

GROUP: Final = "vlmserve.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "VLMService"
PLURAL: Final = "vlmservices"
SINGULAR: Final = "vlmservice"
SHORT_NAME: Final = "vlms"
CATEGORIES: Final = ("all", "vlm")

FIELD_MANAGER: Final = "vlm-operator"

# Labels on every object that the operator creates.
LABEL_SERVICE: Final = f"{GROUP}/service"
LABEL_PLAN: Final = f"{GROUP}/plan"
LABEL_COMPONENT: Final = f"{GROUP}/component"
# On pods that measure a service. They are not the operator's, so they do not bear LABEL_SERVICE.
LABEL_MEASURED: Final = f"{GROUP}/measured"
# On pods, in selectors and on what belongs to one pool. A selector cannot be changed later, so it has them from the start.
LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_ROLE: Final = f"{GROUP}/role"
# The pool of a service that names none.
MAIN_POOL: Final = "main"
# No pool may have these names: other objects of a service are called NAME-plan-HASH, NAME-group and so on.
RESERVED_POOLS: Final = ("router", "group", "plan", "vlm", "inspect")
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

# The router: its pods bear this as their pool, which no pool may be called.
ROUTER: Final = "router"
ROUTER_METRICS_PORT: Final = 8002

# The kind that runs one replica on several nodes.
LWS_API: Final = "leaderworkerset.x-k8s.io/v1"
LWS_KIND: Final = "LeaderWorkerSet"
# Labels that the LeaderWorkerSet controller puts on pods. Worker "0" is the leader, the only pod of a group that serves HTTP.
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"

# The pod. Clients reach the engine directly; the runtime has a port of its own.
MAIN_CONTAINER: Final = "main"
INSTALL_CONTAINER: Final = "install-runtime"
ENGINE_PORT: Final = 8000
RUNTIME_PORT: Final = 8001
# On the runtime's port: 200 while the engine takes requests.
READY_PATH: Final = "/readyz"

RUNTIME_MOUNT: Final = "/opt/vlmserve"
PLAN_MOUNT: Final = "/etc/vlmserve"
PLAN_KEY: Final = "plan.json"
POD_TEMPLATE_KEY: Final = "pod-template.json"
CACHE_MOUNT: Final = "/var/cache/vlmserve"
MODEL_MOUNT: Final = "/models"
CACHE_VOLUME: Final = "cache"
TERMINATION_LOG: Final = "/dev/termination-log"

# Variables that the runtime gets from a Secret.
ENV_API_KEY: Final = "VLMSERVE_API_KEY"
ENV_HF_TOKEN: Final = "HF_TOKEN"
# Set to 1 in ``spec.engine.env`` if clients may name files of the pod, such as those of a mounted volume.
ENV_MEDIA_FILES: Final = "VLMSERVE_ALLOW_MEDIA_FILES"
# Enables the CPU platform plugin.
ENV_DEVICE: Final = "VLMSERVE_DEVICE"
