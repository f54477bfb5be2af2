"""Whose an object is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlm_api.names import API_VERSION, GROUP, KIND
from vlm_operator.kube.client import Json


def owner_reference(service: Mapping[str, Any]) -> Json:
    """The reference from everything that is made for a service to the service, so that it goes when the service goes.

    ``service`` is the live VLMService. There is no blockOwnerDeletion: it would need rights on finalizers.
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
    """Whether an object carries our reference to the service of that uid. A service made anew owns nothing old."""
    references = (manifest.get("metadata") or {}).get("ownerReferences") or []
    return any(r.get("uid") == uid and r.get("controller") for r in references)


def whose(manifest: Mapping[str, Any]) -> tuple[str, str] | None:
    """Kind and name of the controller of any object; None where it has none."""
    references = (manifest.get("metadata") or {}).get("ownerReferences") or []
    return next(((str(r.get("kind")), str(r.get("name"))) for r in references if r.get("controller")), None)


def owner_name(manifest: Mapping[str, Any]) -> str | None:
    """The name of the VLMService that an object belongs to, whatever its labels say; None where it belongs to none."""
    references = (manifest.get("metadata") or {}).get("ownerReferences") or []
    ours = (r for r in references if r.get("controller") and r.get("kind") == KIND)
    return next((str(r.get("name")) for r in ours if str(r.get("apiVersion")).startswith(f"{GROUP}/")), None)
