"""Which devices of the cluster's nodes are asked for already."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from vlm_operator.facts.usage import Asking, asking, in_use
from vlm_operator.kube.client import ApiError, Client
from vlm_operator.kube.kinds import POD

# Every pod of the cluster is a lot to read, and several services plan at the same time when a node comes.
FRESH_SECONDS: Final = 5.0
# Nor is more than a tenth of the time spent on it, however many pods there are. Plans only rank by what is free and
# remark on it: which pod gets a device is for the scheduler to say.
FRESH_FOR_TIMES: Final = 10.0
PAGE: Final = 100
RUNNING: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class Usage:
    """Reads the cluster's pods when a plan needs to know, and only then."""

    def __init__(
        self, client: Client, namespaces: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._clock = clock
        self._lock = threading.Lock()
        self._fresh_until: float | None = None
        self._pods: list[Asking] = []

    def of(self, resource: str, namespace: str, service: str) -> Mapping[str, int]:
        """Devices of that resource asked for on each node by pods of others. Read at the first look into it."""

        return _Lazy(lambda: in_use(self._running(), resource, namespace, service))

    def _running(self) -> list[Asking]:
        # One reads, and the others that plan at the same time take what it has read.
        with self._lock:
            began = self._clock()
            if self._fresh_until is None or began > self._fresh_until:
                self._pods = self._read()
                ended = self._clock()
                self._fresh_until = ended + max(FRESH_SECONDS, FRESH_FOR_TIMES * (ended - began))
            return self._pods

    def _read(self) -> list[Asking]:
        try:
            return self._all()
        except ApiError as error:
            if error.status != 403 or not self._namespaces:
                raise
        # An operator of a few namespaces may not see the others' pods: what these use is then not counted.
        return [p for namespace in self._namespaces for p in self._of(namespace)]

    def _of(self, namespace: str) -> list[Asking]:
        try:
            return self._all(namespace)
        except ApiError as error:
            # One of several that has gone, and its Role with it, holds up no other.
            if error.status != 403 or len(self._namespaces) == 1:
                raise
            return []

    def _all(self, namespace: str | None = None) -> list[Asking]:
        # By pages, and little of each pod: all of ten thousand at once would take a gigabyte.
        pages = self._client.pages(POD, namespace, fields=RUNNING, limit=PAGE)
        return [pod for page in pages for pod in asking(page["items"])]


class _Lazy(Mapping[str, int]):
    """A mapping that is worked out at the first look: a plan that stays never looks."""

    def __init__(self, load: Callable[[], Mapping[str, int]]) -> None:
        self._load = load
        self._found: Mapping[str, int] | None = None

    def _loaded(self) -> Mapping[str, int]:
        if self._found is None:
            self._found = self._load()
        return self._found

    def __getitem__(self, node: str) -> int:
        return self._loaded()[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())
