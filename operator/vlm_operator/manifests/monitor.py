"""The PodMonitor of a service: how Prometheus scrapes the engine and the runtime in its pods."""

import re
from typing import Final

from vlm_api.names import LABEL_PLAN, LABEL_POOL, LABEL_SERVICE, LWS_WORKER_INDEX
from vlm_operator.manifests import names
from vlm_operator.manifests.names import Manifest
from vlm_operator.manifests.pod.template import SCHEME_ANNOTATION


def _discovered(kind: str, name: str) -> str:
    """Prometheus' name for a pod's label or annotation before relabeling."""
    return f"__meta_kubernetes_pod_{kind}_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"


# Target labels that rules and dashboards use, from the pods' own labels.
TARGET_LABELS: Final = [
    {"sourceLabels": [_discovered("label", label)], "targetLabel": target, "action": "replace"}
    for label, target in ((LABEL_SERVICE, "vlmservice"), (LABEL_POOL, "vlmpool"), (LABEL_PLAN, "vlmplan"))
]
# An engine with a certificate is scraped by https. In a group only the leader has one; the followers' small server does not.
SCHEME: Final = {
    "sourceLabels": [_discovered("annotation", SCHEME_ANNOTATION), _discovered("label", LWS_WORKER_INDEX)],
    "regex": "(https);0?",
    "targetLabel": "__scheme__",
    "replacement": "$1",
    "action": "replace",
}
# The certificate is issued for the service's name, and Prometheus scrapes each pod by its address.
ANY_CERTIFICATE: Final = {"insecureSkipVerify": True}
# The engine's metrics begin with "sglang:". Its client library renames them to "sglang_" for a Prometheus that does not
# accept every name, such as Prometheus 2; rules and dashboards use the engine's names.
METRIC_NAMES: Final = [
    {
        "sourceLabels": ["__name__"],
        "regex": "sglang_(.+)",
        "targetLabel": "__name__",
        "replacement": "sglang:$1",
        "action": "replace",
    }
]


def pod_monitor(service: str) -> Manifest:
    """The PodMonitor for the pods of all pools, without labels and owner."""
    endpoints: dict[str, Manifest] = {
        names.HTTP: {"relabelings": [*TARGET_LABELS, SCHEME], "tlsConfig": ANY_CERTIFICATE},
        names.RUNTIME: {"relabelings": TARGET_LABELS},
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": service},
        "spec": {
            "selector": {"matchLabels": names.engine_labels(service)},
            "podMetricsEndpoints": [
                {"port": port, "path": "/metrics", **endpoint, "metricRelabelings": METRIC_NAMES}
                for port, endpoint in endpoints.items()
            ],
        },
    }
