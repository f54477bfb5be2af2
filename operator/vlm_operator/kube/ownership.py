"""Owners of objects."""

from collections.abc import Mapping
from typing import Any

from vlm_api.names import API_VERSION, GROUP, KIND
from vlm_operator.kube.client import Json


def owner_reference(service: Mapping[str, Any]) -> Json:
    """The reference to the service on each of its objects, so that they are deleted with it.

    ``service`` is the live VLMService. It has no blockOwnerDeletion, which would need rights on finalizers.
    """
    metadata = service["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def is_owned(manifest: Mapping[str, Any], uid: str) -> bool:
    """Whether an object has our reference to the service with that uid. A service that was created again owns nothing old."""
    references = (manifest.get("metadata") or {}).get("ownerReferences") or []
    return any(r.get("uid") == uid and r.get("controller") for r in references)


def controller_of(manifest: Mapping[str, Any]) -> tuple[str, str] | None:
    """Kind and name of the controller of any object; None if it has none."""
    references = (manifest.get("metadata") or {}).get("ownerReferences") or []
    return next(((str(r.get("kind")), str(r.get("name"))) for r in references if r.get("controller")), None)


def owner_name(manifest: Mapping[str, Any]) -> str | None:
    """The name of the VLMService that owns an object, whatever its labels say; None if none does."""
    references = (manifest.get("metadata") or {}).get("ownerReferences") or []
    ours = (r for r in references if r.get("controller") and r.get("kind") == KIND)
    return next((str(r.get("name")) for r in ours if str(r.get("apiVersion")).startswith(f"{GROUP}/")), None)
