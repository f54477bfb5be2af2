"""What is watched: the services, by kopf, and everything that they depend on. An event only queues a service."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Final

from vlm_api.names import LABEL_SERVICE
from vlm_operator.controller.run.cache import Cache
from vlm_operator.controller.run.inventory import Inventory
from vlm_operator.controller.run.queue import Cause, Key, WorkQueue
from vlm_operator.controller.run.services import Intake, Services, WatchFailed
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client
from vlm_operator.kube.kinds import Kind
from vlm_operator.kube.reflector import Reflector, Sink

# Objects of services, found by our label.
LABELLED: Final = (
    *kinds.OWNED, *kinds.OWNED_OPTIONAL, kinds.JOB, kinds.POD, kinds.REPLICA_SET, kinds.REVISION,
)  # fmt: skip
# Nodes come and go in groups.
NODE_DEBOUNCE_SECONDS: Final = 0.1
# After one watch has failed for missing rights: others soon fail too, and one message should name all.
GATHER_SECONDS: Final = 1.0


class Reflectors:
    """All watches except that of the VLMServices themselves."""

    def __init__(self, client: Client, cache: Cache, inventory: Inventory, namespaces: Sequence[str]) -> None:
        self._errors: list[ApiError] = []

        def reflector(kind: Kind, sink: Sink, namespace: str | None = None, labels: str = "") -> Reflector:
            # One of several namespaces may go, and its Role with it; the others go on.
            patient = namespace is not None and len(namespaces) > 1
            return Reflector(
                client, kind, sink, namespace=namespace, labels=labels, patient=patient, failed=self._errors.append
            )

        self._of_cluster = [reflector(kinds.NODE, inventory.nodes), reflector(kinds.RESOURCE_SLICE, inventory.slices)]
        everywhere: list[str | None] = [None]
        self._of_services = {
            ns: [reflector(k, cache.store(k), ns, LABEL_SERVICE) for k in LABELLED] for ns in namespaces or everywhere
        }
        self._all = [*self._of_cluster, *itertools.chain(*self._of_services.values())]

    def start(self) -> None:
        """Starts all threads."""
        for one in self._all:
            one.start()

    def stop(self) -> None:
        """Ends all threads, each with its next event."""
        for one in self._all:
            one.stop()

    async def synced(self) -> None:
        """Waits until all first lists are complete, except in namespaces that cannot be read. Raises WatchFailed."""
        while not all(one.synced.is_set() or one.refused for one in self._all):
            if self._errors:
                await asyncio.sleep(GATHER_SECONDS)
                raise WatchFailed("; ".join(sorted({e.message for e in self._errors})))
            await asyncio.sleep(0.05)

    def refusal(self, namespace: str) -> str | None:
        """Why services of that namespace, one of several, cannot be served; None if everything has been read."""
        of_namespace = self._of_services[namespace]
        if refused := next((one.refused for one in of_namespace if one.refused is not None), None):
            return refused.message
        return None if all(one.synced.is_set() for one in of_namespace) else "not everything has been read yet"


class ClusterWatch:
    """What is known of the cluster by watching it. Changes put services into the queue."""

    def __init__(self, client: Client, namespaces: Sequence[str]) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: WorkQueue | None = None
        self.cache, self.inventory = Cache(self._wake), Inventory(self._wake_all)
        self.reflectors = Reflectors(client, self.cache, self.inventory, namespaces)
        services = self.cache.store(kinds.VLM_SERVICE)
        self.intake, self.services = Intake(services), Services(client, services, namespaces, self.reflectors)

    def fill(self, queue: WorkQueue) -> None:
        """From now on changes put services into this queue; at first all of them. Only inside the event loop."""
        self._loop, self._queue = asyncio.get_running_loop(), queue
        self._add_all()

    def recheck(self, key: Key) -> None:
        """Queues a service although no object of it has changed. From any thread."""
        self._call_soon(lambda queue: queue.recheck(key))

    def _wake(self, key: Key, cause: Cause) -> None:
        self._call_soon(lambda queue: queue.add(key, cause=cause))

    def _wake_all(self) -> None:
        self._call_soon(lambda _: self._add_all())

    def _call_soon(self, call: Callable[[WorkQueue], None]) -> None:
        # Events may still come while the operator ends.
        if self._loop is not None and self._queue is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call, self._queue)

    def _add_all(self) -> None:
        if self._queue is not None:
            for key in self.cache.services():
                self._queue.add(key, NODE_DEBOUNCE_SECONDS, routine=True)
