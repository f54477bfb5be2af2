"""Every condition type and failure reason, with one sentence each. Docs and tests read them from here."""

from __future__ import annotations

from typing import Final


class Conditions:
    """Condition types of a VLMService. All are good when True; Progressing, HardwareDrift and ScalingActive only tell."""

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
    """Only where spec.scaling is set."""


# Why a container ended: reason -> (what happened, what to do). The runtime writes them, the operator shows them.
FAILURES: Final[dict[str, str]] = {
    "BadArgument": "The engine refused a flag. Compare engine.args and engine.settings with the version in the plan.",
    "ConfigurationError": (
        "The engine refused its configuration or could not read the model. See the last lines of the pod's log."
    ),
    "ImageNotSeen": (
        "The engine does not look at images. Serve a vision-language model, with enable_multimodal: true in "
        "engine.settings where the engine turns its vision off, and without language_model_only."
    ),
    "ModelNotFound": "The model's files are not where spec.model.uri says. Check the URI, the claim and the token.",
    "ModelAccessDenied": (
        "The hub gives the model to nobody without the right token. Put one that may read it into a Secret, and name it "
        "in spec.model.tokenSecretRef."
    ),
    "HubUnreachable": (
        "The hub did not answer, broke off, or takes no more requests for now (429). See to the cluster's way out; a token "
        "in spec.model.tokenSecretRef raises the hub's limits; or give the files by a claim, pvc://CLAIM/PATH."
    ),
    "ModelUnreadable": (
        "The model's files are damaged: a download or a copy that broke off, or Git LFS's pointers in the files' place. "
        "Put the files there again."
    ),
    "PermissionDenied": (
        "The engine's user may not read or write a file. Let the pod's user or group do so: by the rights in the claim, or "
        "by the securityContext in spec.template."
    ),
    "DriverUnusable": (
        "CUDA finds no driver in the pod, or none that it can use. Set spec.hardware.runtimeClassName where the cluster "
        "needs it (often nvidia), and hold the node's driver against the CUDA of the engine's image; on nodes with "
        "NVSwitch the fabric manager must run."
    ),
    "DeviceFailed": (
        "A GPU failed, or does not let itself be used. Look for NVIDIA's Xid messages in the node's kernel log; cordon the "
        "node and delete the pod, so that it starts elsewhere, and have the GPU reset or replaced."
    ),
    "GroupIncomplete": (
        "Another pod of the group did not come, or did not load its part of the model, in time. Look at the group's other "
        "pods: an image that is still pulled, a slower download, a failure of their own. A claim that all of them read, "
        "pvc://CLAIM/PATH, saves the downloads."
    ),
    "SharedMemoryFull": (
        "/dev/shm is full. Raise spec.sharedMemorySize, or remove it so that it is computed; it counts against the "
        "container's memory limit."
    ),
    "DiskFull": (
        "A disk that the engine writes to is full. Give the model's files a larger claim in spec.model.cacheClaim, or "
        "raise the limits of ephemeral storage in spec.template."
    ),
    "OutOfDeviceMemory": (
        "The GPU's memory ran out. Lower workload.concurrency or the images, or use more GPUs (parallelism.tensor)."
    ),
    "OutOfHostMemory": (
        "The kernel killed the engine for memory. Raise the memory limit of container main in spec.template if you set one "
        "there; else the node ran out: raise requests.memory there, or lower workload.concurrency."
    ),
    "HardwareMismatch": (
        "The pod got less hardware than the plan was made for. The operator plans again; see HardwareResolved."
    ),
    "PortInUse": (
        "Another process has the port. Look for a second container or hostNetwork in spec.template that uses it."
    ),
    "EngineKilled": "The engine was ended by a signal that nobody here sent.",
    "SchedulerDied": "A scheduler process of the engine died. See the last lines of the pod's log.",
    "EngineHung": (
        "The engine lived, but nothing moved in it for too long. Look for what its processes last wrote in the pod's log; "
        "if requests may take longer, raise workload.maxRequestSeconds."
    ),
    "StartupTimeout": "The engine did not become ready within its budget. See the phase in status.startup.",
    "EngineExited": "The engine ended without being asked to.",
    "BadApiKey": (
        "No client can send the API key in a header. Write printable ASCII characters without spaces into the Secret of "
        "spec.security.apiKeySecretRef."
    ),
    "BadPlan": "The runtime could not read its plan. Look at the ConfigMap that the pod mounts.",
}

# Why a model's files could not be read before it is served: reason -> what happened. The service is made all the same.
UNREAD: Final[dict[str, str]] = {
    "ModelNotFound": "There is no such model, revision or folder, or it has no config.json.",
    "ModelAccessDenied": "The hub shows the model to nobody without the right token.",
    "ModelUnreadable": "The model's config.json is not what it should be.",
    "HubUnreachable": "The hub did not answer.",
    "InspectUnschedulable": "The scheduler found no node for the pod that reads the model's files.",
    "InspectTimedOut": "The pod that reads the model's files did not end in time.",
    "InspectFailed": "The pod that reads the model's files could not be made, could not start, or ended without an answer.",
}
