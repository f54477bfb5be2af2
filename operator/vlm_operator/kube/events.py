"""Events for people: each once, counted when it comes again, never a flood."""

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from datetime import datetime, timezone
from typing import Any, Final

from vlm_api.bounds import cut_bytes, harmless
from vlm_api.names import API_VERSION, FIELD_MANAGER, KIND
from vlm_operator.kube.client import ApiError, Client
from vlm_operator.kube.kinds import EVENT

log = logging.getLogger(__name__)

# The same event is not written again within this time.
QUIET_SECONDS: Final = 600.0
# How many events are remembered; the oldest is forgotten first.
REMEMBERED: Final = 2048
# In bytes: the API server counts those.
NOTE_BYTES: Final = 1024


class Recorder:
    """Writes events.k8s.io/v1 Events about VLMServices. An event that cannot be written is logged and forgotten."""

    def __init__(self, client: Client, instance: str) -> None:
        self._client = client
        self._instance = instance[:128]
        self._lock = threading.Lock()
        self._recorded: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Event -> when it was last written, and how often."""

    def record(self, service: dict[str, Any], kind: str, reason: str, note: str, action: str = "Reconcile") -> None:
        """One event. ``kind`` is Normal or Warning, ``reason`` a CamelCase word, ``note`` a sentence."""
        metadata = service["metadata"]
        key = hashlib.sha256(f"{metadata['uid']}/{reason}/{note}".encode()).hexdigest()[:16]
        now = time.monotonic()
        with self._lock:
            last, count = self._recorded.get(key, (None, 0))
            if last is not None and now - last < QUIET_SECONDS:
                return
            self._recorded[key] = (now, count + 1)
            self._recorded.move_to_end(key)
            while len(self._recorded) > REMEMBERED:
                self._recorded.popitem(last=False)
        name = f"{metadata['name']}.{key}"
        stamp = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = self._event(service, name, stamp, kind, reason, note, action)
        try:
            # If the name is taken, the operator before this one has written it.
            if count or not self._create(event):
                self._count(key, event, max(count + 1, 2))
        except ApiError as error:
            log.warning("event %s not written: %s", reason, error.message)

    def _count(self, key: str, event: dict[str, Any], count: int) -> None:
        metadata = event["metadata"]
        series = {"series": {"count": count, "lastObservedTime": event["eventTime"]}}
        try:
            self._client.merge(EVENT, metadata["namespace"], metadata["name"], series)
        except ApiError as error:
            if error.status != 404:
                raise
            # The API server keeps Events for an hour; one that comes again later is a new Event.
            self._create(event)
            with self._lock:
                self._recorded[key] = (time.monotonic(), 1)

    def _create(self, event: dict[str, Any]) -> bool:
        try:
            self._client.create(EVENT, event)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    def _event(
        self, service: dict[str, Any], name: str, stamp: str, kind: str, reason: str, note: str, action: str
    ) -> dict[str, Any]:
        metadata = service["metadata"]
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "eventTime": stamp,
            "reportingController": f"vlmserve.dev/{FIELD_MANAGER}",
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion"),
            },
            "note": cut_bytes(harmless(note), NOTE_BYTES),
            "type": kind,
        }
