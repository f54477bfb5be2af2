"""Writes the status of a VLMService, only if it differs from the live one."""

import hashlib
import json
import logging
from collections.abc import Callable
from typing import Any

from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.kinds import VLM_SERVICE

log = logging.getLogger(__name__)


class StatusWriter:
    """The status subresource of VLMServices."""

    def __init__(self, client: Client, on_write: Callable[[Json], None] = lambda written: None) -> None:
        """``on_write`` gets the object after each write."""
        self._client = client
        self._on_write = on_write
        self._accepted: dict[tuple[str, str], str] = {}
        """Service -> digest of the status that was sent and of the smaller one that was kept."""

    def write(self, service: Json, status: Json) -> bool:
        """Replaces the status of the live ``service``. Returns whether anything was sent.

        Raises ApiError, but not if the service was changed, deleted or created again meanwhile: that is an event of its own.
        """
        metadata, wanted, live = service["metadata"], without_nulls(status), service.get("status") or {}
        key = (metadata["namespace"], metadata["name"])
        # The API server returns 171.0 as 171, which is equal in Python.
        if wanted == live or (key in self._accepted and self._accepted[key] == _digest(metadata["uid"], wanted, live)):
            return False
        # Not a merge patch, which would keep labels and variables that are gone.
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            # A status for an older state would undo what others have written since.
            {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
            {"op": "add", "path": "/status", "value": wanted},
        ]
        try:
            answer = self._client.json_patch(
                VLM_SERVICE, metadata["namespace"], metadata["name"], patch, subresource="status"
            )
        except ApiError as error:
            if error.status in (404, 409) or "testing path" in error.message:
                return False
            raise
        self._on_write(answer)
        self._accepted.pop(key, None)
        if (kept := answer.get("status") or {}) != wanted:
            # An older CRD does not know all fields. Without this the difference would be written forever.
            log.warning("%s/%s: the API server did not keep all of the status: update the CRD", *key)
            self._accepted[key] = _digest(metadata["uid"], wanted, kept)
        return True

    def forget(self, namespace: str, name: str) -> None:
        """The service is gone."""
        self._accepted.pop((namespace, name), None)


def without_nulls(value: Any) -> Any:
    """A JSON value without null fields, which the API server drops."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
