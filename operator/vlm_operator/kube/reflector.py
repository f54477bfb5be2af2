"""Keeps up with all objects of one kind: a list, then a watch, and a list again whenever the watch cannot go on."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection
from typing import Final, Protocol

from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.kinds import MAY_BE_MISSING, Kind

log = logging.getLogger(__name__)

# Objects of a page: what is read at once is in memory as a whole, and a status with its plan is large.
PAGE: Final = 100
FIRST_BACKOFF_SECONDS: Final = 0.5
LAST_BACKOFF_SECONDS: Final = 10.0
# A watch lasts for minutes. What ends each of them at once, as a proxy may, is not to be asked without end.
AT_ONCE_SECONDS: Final = 1.0
# A kind that the cluster lacks may be installed at any time, and nothing tells.
MISSING_SECONDS: Final = 30.0
# And a namespace that went may come back, with the rights in it.
REFUSED_SECONDS: Final = 10.0


class Sink(Protocol):
    """Where the objects go. Called from one thread for each kind and namespace."""

    def see(self, found: Json, *, deleted: bool = False, listed: bool = False) -> None:
        """An object as it is now, or as it was when it was deleted; ``listed``: by a list, which overrules all before."""

    def keep(self, namespace: str | None, names: Collection[tuple[str | None, str]], version: str) -> None:
        """A list of that version has ended: whatever is not among these (namespace and name) is gone."""


class Reflector(threading.Thread):
    """One kind in one namespace, or in all of them. Runs until the process ends or ``stop`` is called.

    A silent connection, an API server that is away and a version that is too old are normal: it goes on from where it
    was, or lists anew. Only rights that are missing from the start are an error: ``failed`` is told, and the thread ends.
    Where ``patient``, they are no error but waited for: ``refused`` says so, and the sink keeps what it has.
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
        """Set once the first list is complete, also where the cluster does not know the kind."""
        self.refused: ApiError | None = None
        """Why nothing may be read at present, where that is waited for."""

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
                    raise ApiError(0, "NoAnswer", "the watch has ended at once, without any news")
                failures = 0
            except ApiError as error:
                if error.status == 403 and self._patient:
                    self.refused, version, failures = error, None, 0
                    self._stopping.wait(REFUSED_SECONDS * random.uniform(0.8, 1.2))
                    continue
                if error.status == 403 and not self.synced.is_set():
                    self._failed(error)
                    return
                # Where there was no answer, the version still holds; everything else is worth another look at all.
                version = version if error.status == 0 else None
                failures += 1
                self._wait(error, failures)
            except Exception:
                # One object that nobody foresaw must not end the watch for all others.
                log.exception("watching %s: a fault of the operator", self._kind.plural)
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
                self._sink.see(found, listed=True)
        self._sink.keep(self._namespace, names, version)
        return version

    def _follow(self, version: str) -> str:
        """Watches until the API server ends it, as it does every few minutes. Returns the version that was reached."""
        for event in self._client.watch(self._kind, self._namespace, labels=self._labels, version=version):
            found = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(int(found.get("code") or 410), str(found.get("reason")), str(found.get("message")))
            if event["type"] != "BOOKMARK":
                self._sink.see(found, deleted=event["type"] == "DELETED")
            version = str(found["metadata"]["resourceVersion"])
            if self._stopping.is_set():
                break
        return version

    def _wait(self, error: ApiError, failures: int) -> None:
        if error.status == 404 and self._kind in MAY_BE_MISSING:
            self._sink.keep(self._namespace, (), "")
            self.refused = None
            self.synced.set()
            self._stopping.wait(MISSING_SECONDS * random.uniform(0.8, 1.2))
            return
        if error.status != 410:
            log.log(
                logging.WARNING if failures > 1 else logging.DEBUG,
                "watching %s: %s (trying again)",
                self._kind.plural,
                error.message,
            )
        delay = min(FIRST_BACKOFF_SECONDS * 2.0 ** (failures - 1), LAST_BACKOFF_SECONDS)
        self._stopping.wait(delay * random.uniform(0.8, 1.2))
