"""The engine and the models of this machine, as read-only claims in any namespace."""

from dataclasses import dataclass
from pathlib import Path

from .kube import Manifest, apply, kubectl
from .paths import ENGINE, MODELS


@dataclass(frozen=True)
class Volume:
    claim: str
    folder: Path
    size: str


VOLUMES = (Volume("sglang", ENGINE, "20Gi"), Volume("models", MODELS, "10Gi"))
ACCESS = ["ReadOnlyMany"]


def manifests(namespace: str) -> list[Manifest]:
    """For each volume a PersistentVolume CLAIM-NAMESPACE and a claim CLAIM, each naming the other."""
    result: list[Manifest] = []
    for volume in VOLUMES:
        name = f"{volume.claim}-{namespace}"
        capacity = {"storage": volume.size}
        common = {"accessModes": ACCESS, "storageClassName": ""}
        persistent = common | {
            "capacity": capacity,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(volume.folder), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": volume.claim},
        }
        claim = common | {"resources": {"requests": capacity}, "volumeName": name}
        result += [
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": persistent},
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": volume.claim, "namespace": namespace},
                "spec": claim,
            },
        ]
    return result


def provide(namespace: str) -> None:
    """Makes the namespace if need be, and both claims in it; returns when they are bound."""
    for volume in VOLUMES:
        name = f"pv/{volume.claim}-{namespace}"
        phase = kubectl("get", name, "--ignore-not-found", "-o", "jsonpath={.status.phase}")
        if phase in ("Released", "Failed"):  # still names the claim of a deleted namespace by its uid
            kubectl("delete", name)
    apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, *manifests(namespace)])
    claims = [f"pvc/{volume.claim}" for volume in VOLUMES]
    kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s", "-n", namespace, *claims)
