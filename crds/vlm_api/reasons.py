"""Every condition type and every reason, with one sentence each. Docs and tests read them from here.

A condition or Event of a VLMService bears a reason of ``CONDITIONS``, or the reason of what it reports: an Error in the plan's
findings (``FindingReason``), a container that ended (``FAILURES``), or a model whose files could not be read (``UNREAD``).
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class About(str, Enum):
    """What a finding is about. The condition of an Error follows from it."""

    HARDWARE = "Hardware"
    """The GPUs and nodes: HardwareResolved."""
    ENGINE = "Engine"
    """The engine, its release and its settings: OverridesResolved."""
    RESOURCES = "Resources"
    """Memory, disk, volumes and how the model is split: ResourceFit."""
    CLUSTER = "Cluster"
    """What the cluster offers beside nodes, such as a controller: Available."""


class Conditions:
    """Condition types of a VLMService. True is good; Progressing, HardwareDrift and ScalingActive are informational."""

    READY: Final = "Ready"
    AVAILABLE: Final = "Available"
    PROGRESSING: Final = "Progressing"
    HARDWARE_RESOLVED: Final = "HardwareResolved"
    OVERRIDES_RESOLVED: Final = "OverridesResolved"
    RESOURCE_FIT: Final = "ResourceFit"
    MODEL_READY: Final = "ModelReady"
    OVERRIDES_EFFECTIVE: Final = "OverridesEffective"
    HARDWARE_DRIFT: Final = "HardwareDrift"
    SCALING_ACTIVE: Final = "ScalingActive"
    """Only with spec.scaling."""


# Ready
SERVING: Final = "Serving"
STARTING: Final = "Starting"
SUSPENDED: Final = "Suspended"
SCALED_TO_ZERO: Final = "ScaledToZero"
UNSCHEDULABLE: Final = "Unschedulable"
PODS_REFUSED: Final = "PodsRefused"
PODS_MISSING: Final = "PodsMissing"
INVALID_SPEC: Final = "InvalidSpec"
NAME_TAKEN: Final = "NameTaken"
NOT_APPLIED: Final = "NotApplied"
OPERATOR_FAULT: Final = "OperatorFault"
# Available
REPLICAS_AVAILABLE: Final = "ReplicasAvailable"
NO_REPLICA_AVAILABLE: Final = "NoReplicaAvailable"
ROUTER_NOT_READY: Final = "RouterNotReady"
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
# ModelReady, and every condition that needs the model's facts
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
WORKLOAD_REPLACED: Final = "WorkloadReplaced"
KIND_MISSING: Final = "KindMissing"

CONDITIONS: Final[dict[str, str]] = {
    SERVING: "At least one replica answers image requests.",
    STARTING: "Pods are starting; status.startup shows how far the slowest one is.",
    SUSPENDED: "spec.suspend is true, so there are no pods; the plan is still made and shown.",
    SCALED_TO_ZERO: "Zero replicas are requested.",
    UNSCHEDULABLE: "The scheduler cannot place a pod; the message is the scheduler's.",
    PODS_REFUSED: "A quota or admission policy is blocking pod creation; the message is the API server's.",
    PODS_MISSING: "A group of pods is incomplete, and nothing has created the missing pods for a while.",
    INVALID_SPEC: "The spec is invalid on any cluster; nothing is retried until it changes.",
    NAME_TAKEN: "An object that the service needs already exists and belongs to something else; it was left alone.",
    NOT_APPLIED: "The API server rejected an object of the service, or a request that planning needs, or keeps failing.",
    OPERATOR_FAULT: "The operator has a fault and cannot finish its work on the service; pods stay as they are.",
    REPLICAS_AVAILABLE: "At least one replica is available.",
    NO_REPLICA_AVAILABLE: "No replica is available.",
    ROUTER_NOT_READY: "No router is ready, so no request reaches an engine.",
    ROLLING_OUT: "Pods are being started or replaced.",
    COMPLETE: "All requested replicas run the current plan and are available.",
    NOT_STARTED: "No rollout is in progress, because there is no plan that can be applied.",
    DEADLINE_EXCEEDED: "Pods have taken longer to start than their startup budget and image pull allow.",
    HARDWARE_FOUND: "The plan was made for hardware that the cluster has.",
    NO_NODE_YET: "No node with suitable hardware is known yet; pods wait for one.",
    DEFAULTS_USED: "Pods run on GPUs that no node describes, with the engine's defaults.",
    CPU: "The service runs on the CPU.",
    RESOLVED: "The engine's version supports every setting, and none contradicts another.",
    FITS: "Weights, images and KV cache fit into the device memory.",
    NOT_CHECKED: "Memory was not checked, because a size is unknown.",
    INSPECTING: "A short Job reads the model's config.json before the plan is made.",
    MODEL_LOADED: "An engine has loaded the model.",
    MODEL_NOT_LOADED_YET: "No engine has loaded the model yet.",
    IN_FORCE: "Every running engine uses every planned setting that it reports.",
    ENGINE_IGNORED_SETTING: "A running engine uses other values than planned; status.effective lists them.",
    FEATURE_POOL_FELL_BACK: "Image features go through host memory although the plan keeps them on the GPU.",
    NOT_ASKED: "Not every running engine has reported its settings yet.",
    NO_DRIFT: "The nodes match the plan.",
    LABELS_CHANGED: "A node's labels no longer match the plan; its pods keep running.",
    HARDWARE_CHANGED: "A node's hardware no longer matches the plan; its pods keep running.",
    NODE_GONE: "A node that a pod ran on has left the cluster.",
    AUTOSCALER_ACTIVE: "The autoscaler has its metric and sets the number of replicas.",
    AUTOSCALER_OFF: "The autoscaler is disabled, because the workload is scaled to zero.",
    AUTOSCALER_SILENT: "The autoscaler has not reported yet.",
    METRIC_MISSING: "The autoscaler cannot read its metric, so the number of replicas does not change.",
    NO_PLAN: "There is no plan to compare the nodes with.",
    EVICTED: "A pod was evicted from its node, or rejected by it.",
    CONTAINER_ENDED: "A container exited without reporting why.",
    INSTALL_FAILED: "The init container could not install the runtime beside the engine.",
    PLAN_CHANGED: "A new plan is in force, so the pods are replaced.",
    CREATED: "A workload was created.",
    WORKLOAD_REPLACED: "A workload was deleted and created again, since an update could not make it the wanted one.",
    KIND_MISSING: "The cluster does not serve a kind of object that the spec requires.",
}

# Why a container ended: reason -> what happened and what to do. The runtime writes them, the operator shows them.
FAILURES: Final[dict[str, str]] = {
    "BadArgument": "The engine refused a flag. Compare engine.args and engine.settings with the version in the plan.",
    "ConfigurationError": (
        "The engine refused its configuration or could not read the model. See the last lines of the pod's log."
    ),
    "ImageNotSeen": (
        "The engine ignores images. Serve a vision-language model. Set enable_multimodal: true in engine.settings if the "
        "engine disables vision for it, and remove language_model_only."
    ),
    "ModelNotFound": "The model's files are not at spec.model.uri. Check the URI, the claim and the token.",
    "ModelAccessDenied": (
        "The model requires a token. Store one that has access to it in a Secret, and set spec.model.tokenSecretRef."
    ),
    "HubUnreachable": (
        "The hub did not respond, closed the connection, or limits requests (429). Check the cluster's egress; a token in "
        "spec.model.tokenSecretRef raises the limit; or use a claim, pvc://CLAIM/PATH."
    ),
    "ModelUnreadable": (
        "The model's files are damaged: an incomplete download or copy, or Git LFS pointers instead of files. Copy them "
        "again."
    ),
    "PermissionDenied": (
        "The engine's user has no permission to read or write a file. Change the permissions in the claim, or the "
        "securityContext in spec.template."
    ),
    "DriverUnusable": (
        "CUDA finds no usable driver in the pod. Set spec.hardware.runtimeClassName if the cluster needs it (often nvidia), "
        "and check that the node's driver supports the CUDA version of the engine's image. Nodes with NVSwitch need a "
        "running fabric manager."
    ),
    "DeviceFailed": (
        "A GPU failed or is unusable. Look for Xid messages in the node's kernel log, cordon the node, delete the pod so "
        "that it starts elsewhere, and reset or replace the GPU."
    ),
    "GpuUnsupported": (
        "The engine or its image has no code for this GPU. Set engine.image to one that supports it, or select other GPUs in "
        "hardware.products."
    ),
    "GpuOccupied": (
        "Another process uses memory of one of the pod's GPUs. Find it with nvidia-smi on the node and end it, or select "
        "other nodes in spec.template."
    ),
    "GroupDisconnected": (
        "The group's pods lost or could not open their connection (NCCL, Gloo or RDMA). Check the group's other pods, "
        "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME in engine.env, and NetworkPolicies between these pods."
    ),
    "GroupIncomplete": (
        "Another pod of the group did not start or did not load its part of the model in time. Check the group's other pods "
        "for slow image pulls, slow downloads or failures. A shared claim, pvc://CLAIM/PATH, avoids the downloads."
    ),
    "SharedMemoryFull": (
        "/dev/shm is full. Raise spec.sharedMemorySize, or remove it so that it is computed. It counts against the "
        "container's memory limit."
    ),
    "DiskFull": (
        "A disk is full. Use a larger claim in spec.model.cacheClaim, or raise the ephemeral-storage limit in spec.template."
    ),
    "OutOfDeviceMemory": (
        "The GPU is out of memory. Lower workload.concurrency, send fewer or smaller images, or use more GPUs "
        "(parallelism.tensor)."
    ),
    "OutOfHostMemory": (
        "The kernel killed the engine because memory ran out. Raise the memory limit of container main in spec.template if "
        "you set one. Otherwise the node ran out: raise requests.memory there, or lower workload.concurrency."
    ),
    "HardwareMismatch": (
        "The pod got less hardware than planned. The operator makes a new plan; see HardwareResolved."
    ),
    "PortInUse": ("Another process uses the port. Look for a second container or hostNetwork in spec.template."),
    "EngineKilled": "The engine was killed by a signal from outside. See the node's kernel log and events.",
    "SchedulerDied": "A scheduler process of the engine died. See the last lines of the pod's log.",
    "EngineHung": (
        "The engine was running but made no progress. See the last lines of the pod's log. If requests may take longer, "
        "raise workload.maxRequestSeconds."
    ),
    "StartupTimeout": "The engine did not become ready within its startup budget. See the phase in status.startup.",
    "EngineExited": "The engine exited unexpectedly. See the last lines of the pod's log.",
    "BadApiKey": (
        "The API key is blank or not valid in an HTTP header. Use printable ASCII characters without spaces in the Secret of "
        "spec.security.apiKeySecretRef."
    ),
    "BadToken": "The Hugging Face token is blank. Put it into the Secret of spec.model.tokenSecretRef, or remove the field.",
    "BadPlan": "The runtime could not read its plan. Check the ConfigMap that the pod mounts.",
}

# Why a model's files could not be read before it is served: reason -> what happened. A new service is created anyway.
UNREAD: Final[dict[str, str]] = {
    "ModelNotFound": "The model, revision or folder does not exist, or it has no config.json.",
    "ModelAccessDenied": "The model requires a token with access to it.",
    "ModelUnreadable": "The model's config.json is not valid.",
    "HubUnreachable": "The hub did not respond.",
    "SecretNotFound": "A Secret, or a key in it, that the inspection pod needs does not exist.",
    "InspectUnschedulable": "The inspection pod cannot be scheduled.",
    "InspectTimedOut": "The inspection pod did not finish in time.",
    "InspectFailed": "The inspection pod could not be created, did not start, or ended without a result.",
}


# fmt: off
class FindingReason(str, Enum):
    """Why a plan has a finding: the word, what it is about, and one sentence."""

    about: About
    sentence: str

    def __new__(cls, word: str, about: About, sentence: str) -> FindingReason:
        """A reason that is also its word."""
        reason = str.__new__(cls, word)
        reason._value_, reason.about, reason.sentence = word, about, sentence
        return reason

    TENSOR_PARALLEL_OVER_MIG = "TensorParallelOverMIG", About.HARDWARE, "MIG slices cannot be joined, and a pod needs several."
    SHARES_ARE_NOT_DEVICES = "SharesAreNotDevices", About.HARDWARE, "Pods share GPUs, so several devices may be the same one."
    TOO_MANY_DEVICES = "TooManyDevices", About.HARDWARE, "A pod needs more devices than any node has."
    NO_MATCHING_NODES = "NoMatchingNodes", About.HARDWARE, "No node has a GPU that the service may use."
    TOO_FEW_NODES = "TooFewNodes", About.HARDWARE, "Fewer nodes match than one replica needs."
    DEVICES_IN_USE = "DevicesInUse", About.HARDWARE, "Nodes have enough devices, but other pods use them now."
    DEVICES_UNHEALTHY = "DevicesUnhealthy", About.HARDWARE, "The device plugin has taken devices away for their health."
    HARDWARE_INFERRED = "HardwareInferred", About.HARDWARE, "No label names the GPU, so the instance type decides."
    HARDWARE_UNKNOWN = "HardwareUnknown", About.HARDWARE, "No label describes the GPUs, so the engine's defaults are used."
    AMBIGUOUS_LABELS = "AmbiguousLabels", About.HARDWARE, "A node's labels do not describe its GPUs reliably."
    IMAGE_FOR_OTHER_HARDWARE = "ImageForOtherHardware", About.HARDWARE, "The image's tag names other hardware than NVIDIA GPUs."
    IMAGE_FOR_OTHER_PROCESSORS = "ImageForOtherProcessors", About.HARDWARE, "The image is not known for the nodes' processors."
    DRIVER_TOO_OLD = "DriverTooOld", About.HARDWARE, "The image is built for a newer CUDA than the nodes' driver supports."
    GPU_TOO_OLD = "GpuTooOld", About.HARDWARE, "The engine, or its image's CUDA, has no code for GPUs of this age."
    GPU_LACKS_QUANTIZATION = "GpuLacksQuantization", About.HARDWARE, "The GPUs do not run a quantization method."
    GPU_LACKS_ATTENTION = "GpuLacksAttention", About.HARDWARE, "The GPUs do not run an attention backend."
    VIRTUAL_GPU = "VirtualGpu", About.HARDWARE, "The GPUs are virtual (vGPU)."
    GPU_SHARED = "GpuShared", About.HARDWARE, "Pods share a device by time-slicing, which does not divide its memory."
    MPS_SHARED_MEMORY = "MpsSharedMemory", About.HARDWARE, "Pods share a GPU by MPS, which mounts a /dev/shm of its own."
    MIN_MEMORY_TOO_LOW = "MinMemoryTooLow", About.HARDWARE, "A GPU that hardware.minMemoryMiB allows is too small."

    ENGINE_VERSION_UNKNOWN = "EngineVersionUnknown", About.ENGINE, "The image does not name a release that the operator knows."
    ENGINE_VERSION_DIFFERS = "EngineVersionDiffers", About.ENGINE, "engine.version and the image's tag name different releases."
    ENGINE_SETTING_UNCHECKED = "EngineSettingUnchecked", About.ENGINE, "A setting cannot be checked in an unknown release."
    ENGINE_SETTING_DEPRECATED = "EngineSettingDeprecated", About.ENGINE, "The release has a newer name for a flag."
    ENGINE_SETTING_WITHOUT_EFFECT = "EngineSettingWithoutEffect", About.ENGINE, "The release no longer reads a setting."
    ENGINE_VARIABLE_UNKNOWN = "EngineVariableUnknown", About.ENGINE, "A variable named like the engine's is unknown to it."
    ENGINE_FAULT = "EngineFault", About.ENGINE, "The release has a known bug that this plan can trigger."
    NOT_MULTIMODAL = "NotMultimodal", About.ENGINE, "The engine would accept no images for this model."
    PROFILE_NOT_MEASURED_HERE = "ProfileNotMeasuredHere", About.ENGINE, "A profile was measured with other traffic than declared."
    DECODE_GRAPH_SMALL = "DecodeGraphSmall", About.ENGINE, "Large batches decode outside the engine's CUDA graphs."
    CUDA_IPC_NOT_USED = "CudaIpcNotUsed", About.ENGINE, "A setting of the user rules CUDA IPC out."
    IMAGES_NOT_ENFORCED = "ImagesNotEnforced", About.ENGINE, "The release has no flag that limits images."
    VIDEOS_NOT_TAKEN = "VideosNotTaken", About.ENGINE, "Videos are declared, and the engine takes none for this model."
    IMAGES_REFUSED = "ImagesRefused", About.ENGINE, "The engine refuses the declared number of images."
    VIDEOS_REFUSED = "VideosRefused", About.ENGINE, "The engine refuses the declared number of videos."
    CONTEXT_TOO_SHORT = "ContextTooShort", About.ENGINE, "The engine refuses requests of the declared length."
    CONTEXT_TOO_LONG = "ContextTooLong", About.ENGINE, "The engine would not start with a context above the model's own."
    TENSOR_RANKS_UNBALANCED = "TensorRanksUnbalanced", About.ENGINE, "The feature pool makes a check of the engine fail."
    CONTROL_PATHS_OPEN = "ControlPathsOpen", About.ENGINE, "Clients can reach paths that flush, pause or profile the engine."
    ENGINE_RUNS_CODE = "EngineRunsCode", About.ENGINE, "A setting runs code of clients, of the model or of other modules."
    MEDIA_FILES_OPEN = "MediaFilesOpen", About.ENGINE, "Requests may name files of the pod."
    CERTIFICATE_FOR_LOOPBACK = "CertificateForLoopback", About.ENGINE, "The engine verifies its certificate for 127.0.0.1."
    MEDIA_FROM_PUBLIC_HOSTS = "MediaFromPublicHosts", About.ENGINE, "Requests may name images on any public host."
    MEDIA_URLS_OPEN = "MediaUrlsOpen", About.ENGINE, "Requests may name images on any host that the pods reach."
    MEDIA_DOMAINS_NOT_ENFORCED = "MediaDomainsNotEnforced", About.ENGINE, "The release cannot restrict the hosts of images."

    MODEL_DOES_NOT_FIT = "ModelDoesNotFit", About.RESOURCES, "The model does not fit into the memory of its devices."
    MEMORY_TIGHT = "MemoryTight", About.RESOURCES, "The model may not fit, within the uncertainty of the estimate."
    LOADING_NOT_CHECKED = "LoadingNotChecked", About.RESOURCES, "The files may need more memory while they are loaded."
    MEMORY_NOT_CHECKED = "MemoryNotChecked", About.RESOURCES, "A size is unknown, so memory was not checked."
    NAME_SAYS_TOO_LARGE = "NameSaysTooLarge", About.RESOURCES, "By the size in its name, the model does not fit."
    MEMORY_NOT_COUNTED = "MemoryNotCounted", About.RESOURCES, "A user's setting needs GPU memory of an unknown size."
    RESERVE_TOO_SMALL = "ReserveTooSmall", About.RESOURCES, "mem_fraction_static leaves too little for activations."
    KV_CACHE_HOLDS_FEWER = "KvCacheHoldsFewer", About.RESOURCES, "The KV cache holds fewer requests than are declared."
    STATES_HOLD_FEWER = "StatesHoldFewer", About.RESOURCES, "States of running requests fit for fewer than are declared."
    FEATURE_POOL_CAPPED = "FeaturePoolCapped", About.RESOURCES, "The feature pool is smaller than requested or recommended."
    FEATURE_POOL_TOO_SMALL = "FeaturePoolTooSmall", About.RESOURCES, "The user's feature pool holds fewer images than declared."
    NO_ROOM_FOR_FEATURE_POOL = "NoRoomForFeaturePool", About.RESOURCES, "Without a feature pool images go through the CPU."
    EMBEDDING_CACHE_CAPPED = "EmbeddingCacheCapped", About.RESOURCES, "The embedding cache does not hold all declared images."
    HEADS_NOT_DIVISIBLE = "HeadsNotDivisible", About.RESOURCES, "Attention heads do not divide over the tensor ranks."
    TOO_FEW_LAYERS = "TooFewLayers", About.RESOURCES, "The model has fewer layers than pipeline stages."
    EXPERTS_NOT_DIVISIBLE = "ExpertsNotDivisible", About.RESOURCES, "Experts do not divide over their ranks."
    BLOCKS_NOT_DIVISIBLE = "BlocksNotDivisible", About.RESOURCES, "Weights that share a scale do not divide over the ranks."
    SPLIT_NOT_CHECKED = "SplitNotChecked", About.RESOURCES, "The model's heads are unknown, so its split was not checked."
    MODEL_UNKNOWN = "ModelUnknown", About.RESOURCES, "Nothing is known about the model."
    FAMILY_UNKNOWN = "FamilyUnknown", About.RESOURCES, "The model's family is unknown, so its images cannot be counted."
    IMAGES_NOT_COUNTED = "ImagesNotCounted", About.RESOURCES, "The family is known, but not how many tokens its images have."
    VIDEOS_PREPARED_ON_GPU = "VideosPreparedOnGpu", About.RESOURCES, "Frames of videos take GPU memory that no plan counts."
    VIDEOS_NOT_COUNTED = "VideosNotCounted", About.RESOURCES, "Videos are declared, and their tokens are not known."
    ARCHITECTURE_DIFFERS = "ArchitectureDiffers", About.RESOURCES, "spec.model.architecture differs from the model's config.json."
    PARAMETERS_DIFFER = "ParametersDiffer", About.RESOURCES, "spec.model.parametersBillion differs from the model's own size."
    SHARED_MEMORY_TOO_SMALL = "SharedMemoryTooSmall", About.RESOURCES, "spec.sharedMemorySize is less than the service may need."
    MEMORY_LIMIT_TOO_LOW = "MemoryLimitTooLow", About.RESOURCES, "The user's memory limit is less than the pod may need."
    NODE_MEMORY_TOO_SMALL = "NodeMemoryTooSmall", About.RESOURCES, "No chosen node has the memory that the pod requests."
    NODE_DISK_TOO_SMALL = "NodeDiskTooSmall", About.RESOURCES, "No chosen node has room for the downloaded weights."
    DISK_LIMIT_TOO_LOW = "DiskLimitTooLow", About.RESOURCES, "The user's disk limit is less than the weights to download."
    GROUP_DOWNLOADS = "GroupDownloads", About.RESOURCES, "Each pod of a group downloads the weights itself."
    CLAIM_FOR_ONE_POD = "ClaimForOnePod", About.RESOURCES, "Several pods would mount a claim that allows one."
    CLAIM_ON_ONE_NODE = "ClaimOnOneNode", About.RESOURCES, "Pods on several nodes would mount a claim that one node can attach."
    CLAIM_NOT_FOUND = "ClaimNotFound", About.RESOURCES, "A claim that a change of a service that runs would mount does not exist."
    CLAIM_NOT_CHECKED = "ClaimNotChecked", About.RESOURCES, "The access modes of a shared claim are unknown."
    SCALES_LATE = "ScalesLate", About.RESOURCES, "scaling.targetInFlight is more than one replica runs at once."
    IMAGES_REPEAT = "ImagesRepeat", About.RESOURCES, "Images repeat, although the spec declares that they do not."
    IMAGES_DO_NOT_REPEAT = "ImagesDoNotRepeat", About.RESOURCES, "Images do not repeat, although the spec declares that they do."

    ROUTER_NEEDS_HTTP = "RouterNeedsHttp", About.CLUSTER, "Engines with a certificate stand behind a router that speaks http."
    NO_CACHE_TO_MEET = "NoCacheToMeet", About.CLUSTER, "Affinity by image is wanted, and every cache of a pool is off."

    FINDINGS_LEFT_OUT = "FindingsLeftOut", About.ENGINE, "There are more findings than a plan lists."
    LEADER_WORKER_SET_MISSING = "LeaderWorkerSetMissing", About.CLUSTER, "The cluster has no LeaderWorkerSet controller."
    TEMPLATE_FIELD_UNKNOWN = "TemplateFieldUnknown", About.CLUSTER, "spec.template has a field that Kubernetes does not know."
    EGRESS_OPENED = "EgressOpened", About.CLUSTER, "The NetworkPolicy opens hosts in the cluster, or more than needed."
    EGRESS_NOT_OPENED = "EgressNotOpened", About.CLUSTER, "The NetworkPolicy does not open a host that cannot be read."

# fmt: on

# Findings that plans of ordinary services have: a table of findings may leave them out.
USUAL: Final = frozenset({FindingReason.MEDIA_FROM_PUBLIC_HOSTS})
# Errors that can end without an event that the operator watches: a controller that is installed, a claim that is replaced.
UNWATCHED: Final = frozenset(
    {FindingReason.LEADER_WORKER_SET_MISSING, FindingReason.CLAIM_FOR_ONE_POD, FindingReason.CLAIM_NOT_FOUND}
)
