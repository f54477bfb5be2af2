"""Names that both sides, users' manifests and dashboards depend on. Changing one is a breaking change."""

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

# Labels on everything that the operator makes.
LABEL_SERVICE: Final = f"{GROUP}/service"
LABEL_PLAN: Final = f"{GROUP}/plan"
LABEL_COMPONENT: Final = f"{GROUP}/component"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

# The pod. Clients reach the engine directly; the runtime has a port of its own.
MAIN_CONTAINER: Final = "main"
INSTALL_CONTAINER: Final = "install-runtime"
ENGINE_PORT: Final = 8000
RUNTIME_PORT: Final = 8001

RUNTIME_MOUNT: Final = "/opt/vlmserve"
PLAN_MOUNT: Final = "/etc/vlmserve"
PLAN_KEY: Final = "plan.json"
POD_TEMPLATE_KEY: Final = "pod-template.json"
CACHE_MOUNT: Final = "/var/cache/vlmserve"
MODEL_MOUNT: Final = "/models"
CACHE_VOLUME: Final = "cache"
TERMINATION_LOG: Final = "/dev/termination-log"

# Values that reach the runtime from a Secret, by reference only.
ENV_API_KEY: Final = "VLMSERVE_API_KEY"
ENV_HF_TOKEN: Final = "HF_TOKEN"
# Turns the platform plugin for the CPU on; without it the plugin does nothing.
ENV_DEVICE: Final = "VLMSERVE_DEVICE"
