"""Writes a VLMService's status, and only when it says something else than before."""

from __future__ import annotations

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

    def __init__(self, client: Client, seen: Callable[[Json], None] = lambda found: None) -> None:
        """``seen`` is told what each write has made of the object."""
        self._client = client
        self._seen = seen
        self._accepted: dict[tuple[str, str], str] = {}
        """Service -> digest of what was wanted and what was kept of it, where that is less."""

    def write(self, service: Json, status: Json) -> bool:
        """Replaces the status of the live ``service``. Returns whether anything was sent.

        Raises ApiError, but not where the service has changed, gone or was made anew meanwhile: that is an event of
        its own.
        """
        metadata, wanted = service["metadata"], without_nulls(status)
        live, key = _text(service.get("status") or {}), (metadata["namespace"], metadata["name"])
        if _text(wanted) == live or self._accepted.get(key) == _digest(metadata["uid"], _text(wanted), live):
            return False
        # Not a merge patch: that would keep labels and variables that are no longer there.
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            # What was said of an older state would undo what others have written into the status since.
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
        self._seen(answer)
        kept = _text(answer.get("status") or {})
        self._accepted.pop(key, None)
        if kept != _text(wanted):
            # An older CRD does not know all fields. Without this the difference would be written for ever.
            log.warning(
                "%s/%s: the API server did not keep all of the status: is the CRD older than the operator?",
                metadata["namespace"],
                metadata["name"],
            )
            self._accepted[key] = _digest(metadata["uid"], _text(wanted), kept)
        return True

    def forget(self, namespace: str, name: str) -> None:
        """The service is gone."""
        self._accepted.pop((namespace, name), None)


def without_nulls(value: Any) -> Any:
    """A JSON value without null fields, which the API server drops."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    """The API server gives 171.0 back as 171."""
    if isinstance(value, dict):
        return {k: _whole(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_whole(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
