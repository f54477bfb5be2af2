"""What is watched beside the services themselves: all that they depend on. An event only wakes the service."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from vlm_api.names import LABEL_SERVICE
from vlm_operator.controller.cache import Cache
from vlm_operator.controller.inventory import Inventory
from vlm_operator.controller.queue import Cause, Key, WorkQueue
from vlm_operator.controller.services import Services, WatchFailed
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.kinds import Kind
from vlm_operator.kube.reflector import Reflector, Sink

# Objects of services, found by our label.
LABELLED: Final = (
    *kinds.OWNED, *kinds.OWNED_OPTIONAL, kinds.JOB, kinds.POD, kinds.REPLICA_SET, kinds.REVISION,
)  # fmt: skip
# Nodes come and go in crowds.
NODE_DEBOUNCE_SECONDS: Final = 0.1
# After one watch has failed for want of rights: others soon do as well, and whoever mends it wants to know all.
GATHER_SECONDS: Final = 1.0


class _Nodes:
    """Nodes or ResourceSlices, into the inventory."""

    def __init__(
        self,
        see: Callable[..., bool],
        names: Callable[[], Collection[str]],
        forget: Callable[[str], bool],
        changed: Callable[[], None],
    ) -> None:
        self._see, self._names, self._forget, self._changed = see, names, forget, changed

    def see(self, found: Json, *, deleted: bool = False, listed: bool = False) -> None:
        """Every service may depend on any node."""
        if self._see(found, deleted=deleted):
            self._changed()

    def keep(self, namespace: str | None, names: Collection[tuple[str | None, str]], version: str) -> None:
        """Nodes went while nobody watched."""
        there = {name for _, name in names}
        gone = [name for name in self._names() if name not in there and self._forget(name)]
        if gone:
            self._changed()


class Watches:
    """All reflectors of an operator."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        inventory: Inventory,
        namespaces: Sequence[str],
        nodes_changed: Callable[[], None],
    ) -> None:
        """``nodes_changed`` is called, from any thread, when what plans may depend on has changed."""
        self._lock = threading.Lock()
        self._errors: list[ApiError] = []
        nodes = _Nodes(inventory.see_node, inventory.nodes, inventory.forget_node, nodes_changed)
        slices = _Nodes(inventory.see_slice, inventory.slices, inventory.forget_slice, nodes_changed)

        def reflector(kind: Kind, sink: Sink, namespace: str | None = None, labels: str = "") -> Reflector:
            # One of several namespaces may go, and its Role with it; the others go on.
            patient = namespace is not None and len(namespaces) > 1
            return Reflector(client, kind, sink, namespace=namespace, labels=labels, patient=patient, failed=self._fail)

        self._of_cluster = [reflector(kinds.NODE, nodes), reflector(kinds.RESOURCE_SLICE, slices)]
        everywhere: list[str | None] = [None]
        self._of_services = {
            ns: [reflector(k, cache.store(k), ns, LABEL_SERVICE) for k in LABELLED] for ns in namespaces or everywhere
        }
        self._reflectors = [*self._of_cluster, *(one for some in self._of_services.values() for one in some)]

    def start(self) -> None:
        """Starts all threads."""
        for one in self._reflectors:
            one.start()

    def stop(self) -> None:
        """Ends all threads, each with its next event."""
        for one in self._reflectors:
            one.stop()

    async def synced(self) -> None:
        """Waits until all first lists are complete, but for namespaces that are passed over. Raises WatchFailed."""
        while not (all(one.synced.is_set() for one in self._of_cluster) and self.settled()):
            await self._raise_failure()
            await asyncio.sleep(0.05)

    def settled(self) -> bool:
        """Whether each of the services' namespaces has been read, or may not be."""
        return all(one.synced.is_set() or one.refused for some in self._of_services.values() for one in some)

    def refusal(self, namespace: str) -> str | None:
        """Why services of that namespace, one of several, cannot be served; None where all that they need is read."""
        found = self._of_services[namespace]
        if refused := next((one.refused for one in found if one.refused is not None), None):
            return refused.message
        return None if all(one.synced.is_set() for one in found) else "not all of it has been read yet"

    async def _raise_failure(self) -> None:
        if not self._errors:
            return
        await asyncio.sleep(GATHER_SECONDS)
        with self._lock:
            raise WatchFailed("; ".join(sorted({e.message for e in self._errors})))

    def _fail(self, error: ApiError) -> None:
        with self._lock:
            self._errors.append(error)


class Cluster:
    """What is known of the cluster by watching it, and who is told when it changes."""

    def __init__(self, client: Client, namespaces: Sequence[str], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: WorkQueue | None = None
        self.cache, self.inventory = Cache(self._wake), Inventory()
        self.watches = Watches(client, self.cache, self.inventory, namespaces, self._wake_all)
        self.services = Services(client, self.cache.store(kinds.VLM_SERVICE), namespaces, self.watches)

    def wakes(self, queue: WorkQueue) -> None:
        """From now on changes put services into this queue; at first all of them. Only from inside the loop."""
        self._queue = queue
        self._add_all()

    def look_again(self, key: Key) -> None:
        """A service is worth a look, though no object of it has changed. From any thread."""
        self._soon(self._add_routine, key)

    def _wake(self, key: Key, cause: Cause) -> None:
        self._soon(self._add, key, cause)

    def _wake_all(self) -> None:
        self._soon(self._add_all)

    def _soon(self, call: Callable[..., None], *of: tuple[str, str]) -> None:
        # News may still come while the operator ends.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *of)

    def _add(self, key: Key, cause: Cause) -> None:
        if self._queue is not None:
            self._queue.add(key, cause=cause)

    def _add_routine(self, key: Key) -> None:
        if self._queue is not None:
            self._queue.look_again(key)

    def _add_all(self) -> None:
        if self._queue is not None:
            for key in self.cache.services():
                self._queue.add(key, NODE_DEBOUNCE_SECONDS, routine=True)
