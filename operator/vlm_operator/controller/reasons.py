"""Every reason that a condition or an Event of a VLMService can carry, with one sentence each.

Beside these, a refused plan's finding (see the findings in ``status.plan``), a failed container and a model whose
files could not be read (``FAILURES`` and ``UNREAD`` of ``vlm_api.reasons``) lend their own reason to the
condition that tells of them.
"""

from __future__ import annotations

from typing import Final

# Ready
SERVING: Final = "Serving"
STARTING: Final = "Starting"
SUSPENDED: Final = "Suspended"
SCALED_TO_ZERO: Final = "ScaledToZero"
UNSCHEDULABLE: Final = "Unschedulable"
POD_FAILED: Final = "PodFailed"
PODS_REFUSED: Final = "PodsRefused"
PODS_MISSING: Final = "PodsMissing"
INVALID_SPEC: Final = "InvalidSpec"
PLAN_REFUSED: Final = "PlanRefused"
NAME_TAKEN: Final = "NameTaken"
NOT_APPLIED: Final = "NotApplied"
# Available
REPLICAS_AVAILABLE: Final = "ReplicasAvailable"
NO_REPLICA_AVAILABLE: Final = "NoReplicaAvailable"
# Progressing
ROLLING_OUT: Final = "RollingOut"
COMPLETE: Final = "Complete"
NOT_STARTED: Final = "NotStarted"
DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"
# HardwareResolved
HARDWARE_FOUND: Final = "HardwareFound"
NO_NODE_YET: Final = "NoNodeYet"
DEFAULTS_USED: Final = "DefaultsUsed"
CPU: Final = "Cpu"
# OverridesResolved
RESOLVED: Final = "Resolved"
# ResourceFit
FITS: Final = "Fits"
NOT_CHECKED: Final = "NotChecked"
# ModelReady, and all that waits for the model's facts
INSPECTING: Final = "Inspecting"
MODEL_LOADED: Final = "ModelLoaded"
MODEL_NOT_LOADED_YET: Final = "ModelNotLoadedYet"
# OverridesEffective
IN_FORCE: Final = "InForce"
ENGINE_IGNORED_SETTING: Final = "EngineIgnoredSetting"
FEATURE_POOL_FELL_BACK: Final = "FeaturePoolFellBack"
NOT_ASKED: Final = "NotAsked"
# HardwareDrift
NO_DRIFT: Final = "NoDrift"
LABELS_CHANGED: Final = "LabelsChanged"
NO_PLAN: Final = "NoPlan"
HARDWARE_CHANGED: Final = "HardwareChanged"
NODE_GONE: Final = "NodeGone"
# ScalingActive
AUTOSCALER_ACTIVE: Final = "AutoscalerActive"
AUTOSCALER_OFF: Final = "AutoscalerOff"
AUTOSCALER_SILENT: Final = "AutoscalerSilent"
METRIC_MISSING: Final = "MetricMissing"
# Pods
EVICTED: Final = "Evicted"
CONTAINER_ENDED: Final = "ContainerEnded"
INSTALL_FAILED: Final = "InstallFailed"
# Events
PLAN_CHANGED: Final = "PlanChanged"
CREATED: Final = "Created"
KIND_MISSING: Final = "KindMissing"

SENTENCES: Final[dict[str, str]] = {
    SERVING: "At least one replica answers requests about images.",
    STARTING: "Pods are on their way; status.startup says how far the slowest is.",
    SUSPENDED: "spec.suspend is true, so there are no pods; the plan is still made and shown.",
    SCALED_TO_ZERO: "The wanted number of replicas is zero.",
    UNSCHEDULABLE: "The scheduler finds no node for a pod; the message is the scheduler's own.",
    POD_FAILED: "A pod ended or cannot start; the message says why and what to do.",
    PODS_REFUSED: "The API server lets no pod be made, by a quota or a policy; the message is its own.",
    PODS_MISSING: "Groups of pods lack some that nobody has made for a while; the message says who can tell why.",
    INVALID_SPEC: "The spec cannot be right whatever the cluster looks like; nothing is tried again until it changes.",
    PLAN_REFUSED: "The plan cannot work on this cluster, so no pod was started; running pods were left alone.",
    NAME_TAKEN: "An object that the service needs exists already and belongs to somebody else; it was left alone.",
    NOT_APPLIED: "The API server refused an object of the service or what its plan is made with, or fails with it.",
    REPLICAS_AVAILABLE: "Replicas answer requests.",
    NO_REPLICA_AVAILABLE: "No replica answers requests.",
    ROLLING_OUT: "Pods are being started or replaced.",
    COMPLETE: "All wanted replicas run the present plan.",
    DEADLINE_EXCEEDED: "Pods have been waited for longer than their start and the pull of their image may take.",
    NOT_STARTED: "There are no pods to wait for.",
    HARDWARE_FOUND: "The plan was made for hardware that the cluster has.",
    NO_NODE_YET: "No node has the hardware yet, and none contradicts it; pods wait for one to come.",
    DEFAULTS_USED: "Pods run on hardware that the cluster does not describe; the engine's defaults are used.",
    CPU: "The service runs on the CPU.",
    RESOLVED: "Every setting is known to the engine's version and free of contradiction.",
    FITS: "Weights, images and cache fit into the memory that is there.",
    NOT_CHECKED: "The memory was not checked, because a size is unknown.",
    INSPECTING: "A short Job reads the model's config.json before the plan is made.",
    MODEL_LOADED: "An engine has loaded the model.",
    MODEL_NOT_LOADED_YET: "No engine has loaded the model yet.",
    IN_FORCE: "Every running engine uses every planned setting, as far as it tells.",
    ENGINE_IGNORED_SETTING: "The running engine uses other values than planned; status.effective lists them.",
    FEATURE_POOL_FELL_BACK: "Image features go through host memory, although they were planned to stay on the GPU.",
    NOT_ASKED: "No running engine has been asked, or it cannot be.",
    NO_DRIFT: "The nodes still look as they did when the plan was made.",
    LABELS_CHANGED: "A node that pods run on no longer has the labels that the plan was made for; the pods stay.",
    HARDWARE_CHANGED: "A node that pods run on is no longer what the plan was made for; the pods stay.",
    NODE_GONE: "A node that a pod ran on has left the cluster.",
    AUTOSCALER_ACTIVE: "The autoscaler has its metric and decides how many replicas there are.",
    AUTOSCALER_OFF: "The autoscaler does nothing, because the workload is scaled to zero.",
    AUTOSCALER_SILENT: "The autoscaler has not said yet whether it has its metric.",
    METRIC_MISSING: "The autoscaler gets no metric, so the number of replicas stays as it is.",
    NO_PLAN: "There is no plan that can be carried out, so nodes have nothing to be compared with.",
    EVICTED: "A pod was removed from its node, or refused by it.",
    CONTAINER_ENDED: "A container ended without saying why.",
    INSTALL_FAILED: "The runtime could not be put beside the engine.",
    PLAN_CHANGED: "The pods of this service are replaced, because its plan is another one.",
    CREATED: "An object of the service was made.",
    KIND_MISSING: "The cluster does not know a kind of object that the spec asks for.",
}
