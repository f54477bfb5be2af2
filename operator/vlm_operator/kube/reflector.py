"""Follows all objects of one kind: a list, then a watch, and a list again whenever the watch cannot continue."""

import logging
import random
import threading
import time
from collections.abc import Callable, Collection
from typing import Final, Protocol

from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.kinds import MAY_BE_MISSING, Kind

log = logging.getLogger(__name__)

# Objects per page. A page is in memory as a whole, and a status with its plan is large.
PAGE: Final = 100
FIRST_BACKOFF_SECONDS: Final = 0.5
LAST_BACKOFF_SECONDS: Final = 10.0
# A watch lasts for minutes. If something, such as a proxy, ends each at once, retries must slow down.
AT_ONCE_SECONDS: Final = 1.0
# A missing kind may be installed at any time, without an event.
MISSING_SECONDS: Final = 30.0
# A deleted namespace may come back, with the rights in it.
REFUSED_SECONDS: Final = 10.0


class Sink(Protocol):
    """Receives the objects. Called from one thread per kind and namespace."""

    def update(self, found: Json, *, deleted: bool = False, listed: bool = False) -> None:
        """An object as it is now, or was when it was deleted. ``listed``: from a list, which overrules earlier events."""

    def retain(self, namespace: str | None, names: Collection[tuple[str | None, str]], version: str) -> None:
        """A list of that version has ended: everything but these (namespace and name) is gone."""


class Reflector(threading.Thread):
    """One kind in one namespace, or in all of them. Runs until the process ends or ``stop`` is called.

    A silent connection, an unreachable API server and an outdated version are normal: it continues from where it was, or lists
    again. Only rights that are missing at the start are an error: ``failed`` is called, and the thread ends. If ``patient``,
    it waits for the rights instead, with the reason in ``refused``, and the sink keeps its objects.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        sink: Sink,
        *,
        namespace: str | None = None,
        labels: str = "",
        patient: bool = False,
        failed: Callable[[ApiError], None],
    ) -> None:
        super().__init__(name=f"watch-{kind.plural}", daemon=True)
        self._client, self._kind, self._sink = client, kind, sink
        self._namespace, self._labels = namespace, labels
        self._patient, self._failed = patient, failed
        self._stopping = threading.Event()
        self.synced = threading.Event()
        """Set once the first list is complete, or the cluster does not serve the kind."""
        self.refused: ApiError | None = None
        """Why nothing can be read now, while it waits for the rights."""

    def stop(self) -> None:
        """Ends the thread after the next event."""
        self._stopping.set()

    def run(self) -> None:
        """Lists and watches."""
        version, failures = None, 0
        while not self._stopping.is_set():
            try:
                if version is None:
                    version = self._list()
                    self.refused = None
                    self.synced.set()
                began, before = time.monotonic(), version
                version = self._follow(version)
                if version == before and time.monotonic() - began < AT_ONCE_SECONDS:
                    raise ApiError(0, "NoAnswer", "the watch has ended at once, without any event")
                failures = 0
            except ApiError as error:
                if error.status == 403 and self._patient:
                    self.refused, version, failures = error, None, 0
                    self._stopping.wait(REFUSED_SECONDS * random.uniform(0.8, 1.2))
                    continue
                if error.status == 403 and not self.synced.is_set():
                    self._failed(error)
                    return
                # Without an answer the version still holds; anything else requires another list.
                version = version if error.status == 0 else None
                failures += 1
                self._wait(error, failures)
            except Exception:
                # One unexpected object must not end the watch of all others.
                log.exception(
                    "watching %s: internal error, retrying in %.0f s", self._kind.plural, LAST_BACKOFF_SECONDS
                )
                version, failures = None, failures + 1
                self._stopping.wait(LAST_BACKOFF_SECONDS)

    def _list(self) -> str:
        names: set[tuple[str | None, str]] = set()
        version = ""
        for page in self._client.pages(self._kind, self._namespace, labels=self._labels, limit=PAGE):
            version = str((page.get("metadata") or {}).get("resourceVersion") or "")
            for found in page["items"]:
                metadata = found["metadata"]
                names.add((metadata.get("namespace"), metadata["name"]))
                self._sink.update(found, listed=True)
        self._sink.retain(self._namespace, names, version)
        return version

    def _follow(self, version: str) -> str:
        """Watches until the API server ends it, as it does every few minutes. Returns the last version."""
        for event in self._client.watch(self._kind, self._namespace, labels=self._labels, version=version):
            found = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(int(found.get("code") or 410), str(found.get("reason")), str(found.get("message")))
            if event["type"] != "BOOKMARK":
                self._sink.update(found, deleted=event["type"] == "DELETED")
            version = str(found["metadata"]["resourceVersion"])
            if self._stopping.is_set():
                break
        return version

    def _wait(self, error: ApiError, failures: int) -> None:
        if error.status == 404 and self._kind in MAY_BE_MISSING:
            self._sink.retain(self._namespace, (), "")
            self.refused = None
            self.synced.set()
            self._stopping.wait(MISSING_SECONDS * random.uniform(0.8, 1.2))
            return
        if error.status != 410:
            log.log(
                logging.WARNING if failures > 1 else logging.DEBUG,
                "watching %s: %s (retrying)",
                self._kind.plural,
                error.message,
            )
        delay = min(FIRST_BACKOFF_SECONDS * 2.0 ** (failures - 1), LAST_BACKOFF_SECONDS)
        self._stopping.wait(delay * random.uniform(0.8, 1.2))
