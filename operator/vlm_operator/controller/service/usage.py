"""How many devices of each node are requested already."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from vlm_api.names import MAIN_POOL
from vlm_operator.facts.nodes.devices_in_use import Asking, asking, in_use
from vlm_operator.kube.client import ApiError, Client
from vlm_operator.kube.kinds import POD

# Reading every pod of the cluster is expensive, and several services plan at the same time when a node joins.
FRESH_SECONDS: Final = 5.0
# At most a tenth of the time goes into reading, however many pods there are. Free devices only rank plans: which pod gets a
# device is the scheduler's decision.
FRESH_FOR_TIMES: Final = 10.0
PAGE: Final = 100
RUNNING: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class Usage:
    """Reads the cluster's pods for plans that depend on them. Plans made at the same time share one read."""

    def __init__(
        self, client: Client, namespaces: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._clock = clock
        self._lock = threading.Lock()
        self._fresh_until: float | None = None
        self._pods: list[Asking] = []
        self._reading: Future[list[Asking]] | None = None

    def of(self, resource: str, namespace: str, service: str, pool: str = MAIN_POOL) -> Mapping[str, int]:
        """Devices of that resource that pods of other services and pools request, by node. Raises ApiError."""
        return in_use(self._running(), resource, namespace, service, pool)

    def _running(self) -> list[Asking]:
        with self._lock:  # never during a read
            began = self._clock()
            if self._fresh_until is not None and began <= self._fresh_until:
                return self._pods
            reading, leads = self._reading, self._reading is None
            if reading is None:
                reading = self._reading = Future()
        if leads:
            self._read_for_all(reading, began)
        return reading.result()

    def _read_for_all(self, reading: Future[list[Asking]], began: float) -> None:
        try:
            pods = self._read()
        except BaseException as error:
            with self._lock:
                self._reading = None
            reading.set_exception(error)
            return
        with self._lock:
            ended = self._clock()
            self._pods, self._reading = pods, None
            self._fresh_until = ended + max(FRESH_SECONDS, FRESH_FOR_TIMES * (ended - began))
        reading.set_result(pods)

    def _read(self) -> list[Asking]:
        try:
            return self._all()
        except ApiError as error:
            if error.status != 403 or not self._namespaces:
                raise
        # An operator of a few namespaces may not list other namespaces' pods, which are then not counted.
        return [p for namespace in self._namespaces for p in self._of(namespace)]

    def _of(self, namespace: str) -> list[Asking]:
        try:
            return self._all(namespace)
        except ApiError as error:
            # A deleted namespace, whose Role is gone too, does not block the others.
            if error.status != 403 or len(self._namespaces) == 1:
                raise
            return []

    def _all(self, namespace: str | None = None) -> list[Asking]:
        # In pages, keeping little of each pod: ten thousand at once would take a gigabyte.
        pages = self._client.pages(POD, namespace, fields=RUNNING, limit=PAGE)
        return [pod for page in pages for pod in asking(page["items"])]
