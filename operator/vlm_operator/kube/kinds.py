"""The kinds of objects that the operator reads or writes, and where the API server keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from vlm_api.names import API_VERSION, KIND, LWS_API, LWS_KIND, PLURAL


@dataclass(frozen=True)
class Kind:
    """One kind of object in one version of its group."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version without its group."""
        return self.api_version.rpartition("/")[2]

    @property
    def root(self) -> str:
        """The path of the group and version, under which the API server lists its kinds."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of an object, of all objects in a namespace, or of all objects."""
        parts = [self.root]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


VLM_SERVICE: Final = Kind(API_VERSION, KIND, PLURAL)
NODE: Final = Kind("v1", "Node", "nodes", namespaced=False)
POD: Final = Kind("v1", "Pod", "pods")
SERVICE: Final = Kind("v1", "Service", "services")
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments")
REPLICA_SET: Final = Kind("apps/v1", "ReplicaSet", "replicasets")
JOB: Final = Kind("batch/v1", "Job", "jobs")
AUTOSCALER: Final = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
DISRUPTION_BUDGET: Final = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
LEADER_WORKER_SET: Final = Kind(LWS_API, LWS_KIND, "leaderworkersets")
NETWORK_POLICY: Final = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
POD_MONITOR: Final = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
RESOURCE_SLICE: Final = Kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", namespaced=False)
PERSISTENT_VOLUME_CLAIM: Final = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
RESOURCE_CLAIM_TEMPLATE: Final = Kind("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
REVISION: Final = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
EVENT: Final = Kind("events.k8s.io/v1", "Event", "events")
LEASE: Final = Kind("coordination.k8s.io/v1", "Lease", "leases")

# The objects of a service: kinds that every cluster serves, and kinds that it may lack.
OWNED: Final = (CONFIG_MAP, SERVICE, DEPLOYMENT, AUTOSCALER, NETWORK_POLICY, DISRUPTION_BUDGET)
OWNED_OPTIONAL: Final = (LEADER_WORKER_SET, POD_MONITOR, RESOURCE_CLAIM_TEMPLATE)
# What the pods of a service come from.
WORKLOADS: Final = (DEPLOYMENT, LEADER_WORKER_SET)
# Kinds that a cluster need not serve.
MAY_BE_MISSING: Final = (*OWNED_OPTIONAL, RESOURCE_SLICE)

_BY_NAME: Final = {(k.api_version, k.kind): k for k in (*OWNED, *OWNED_OPTIONAL, JOB, REVISION)}


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """The kind of one of our own manifests. Raises KeyError for any other."""
    return _BY_NAME[str(manifest["apiVersion"]), str(manifest["kind"])]
