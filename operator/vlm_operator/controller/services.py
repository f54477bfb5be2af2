"""Which VLMServices there are: kopf's watch of them, kept going, and what it does not tell.

kopf keeps no copy and, after a broken watch, tells nothing of what went meanwhile, so names are compared with a list of
identities now and then. Of several namespaces, those that cannot be read are passed over until they can.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from vlm_operator.controller.cache import Store
from vlm_operator.controller.kopf_thread import KopfThread
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client

log = logging.getLogger(__name__)

# After a broken watch kopf lists anew and tells nothing of what went meanwhile: soon after, names are compared.
COMPARE_SOON_SECONDS: Final = 1.0
# And now and then, should all have gone, or should kopf have found nothing to watch when it started.
COMPARE_SECONDS: Final = 60.0
# With several namespaces sooner: one that was refused may be back.
COMPARE_SEVERAL_SECONDS: Final = 10.0
# How long kopf may take to show what is there.
SHOW_SECONDS: Final = 60.0
# While it does, what it has shown is looked at so often, and after so many looks what there is is asked for again.
LOOK_SECONDS: Final = 0.1
LOOKS: Final = 50
# A watch that has ended sooner than this is not begun anew here: the kubelet waits longer each time.
LASTING_SECONDS: Final = 90.0
AWAY_SECONDS: Final = 5.0


class WatchFailed(Exception):
    """A watch cannot begin or go on, such as for want of rights."""


class Reading(Protocol):
    """The watches of what services are made of."""

    def settled(self) -> bool:
        """Whether each has read its first list, or was refused."""

    def refusal(self, namespace: str) -> str | None:
        """Why that namespace cannot be served; None where all of it has been read."""


class Services:
    """The watch for VLMServices."""

    def __init__(self, client: Client, store: Store, namespaces: Sequence[str], reading: Reading) -> None:
        self._client, self._store, self._namespaces, self._reading = client, store, namespaces, reading
        self._several = len(namespaces) > 1
        self._refused: dict[str, str] = {}
        """Namespaces that cannot be served, and why."""
        self._watched: Sequence[str | None] = namespaces or (None,)
        """Namespaces that kopf watches; None: all."""
        self._listed_again, self._regroup = asyncio.Event(), asyncio.Event()
        self.started = asyncio.Event()
        """Set once kopf runs."""

    async def run(self, stop: asyncio.Event) -> None:
        """Watches until ``stop`` is set. Raises WatchFailed where it cannot go on, or where kopf does not show what is
        there."""
        watching = asyncio.create_task(self._watch_forever(stop))
        comparing = asyncio.create_task(self._compare_forever())
        try:
            done, _ = await asyncio.wait((watching, comparing), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            comparing.cancel()
            stop.set()
            await asyncio.wait((watching,))

    async def _watch_forever(self, stop: asyncio.Event) -> None:
        if self._several:
            while not stop.is_set():
                if self._reading.settled():
                    break
                await asyncio.sleep(0.05)
            await self._compared(stop)
        while not stop.is_set():
            await self._watch(stop)

    async def _watch(self, stop: asyncio.Event) -> None:
        """Watches until ``stop`` is set, kopf gives up or other namespaces can be read. Raises WatchFailed."""
        loop, began = asyncio.get_running_loop(), time.monotonic()
        self._regroup.clear()
        served = self._served()
        if self._several and not served:
            # To kopf none would mean all.
            raise WatchFailed("; ".join(sorted(set(self._refused.values()))))

        def changed(event: Mapping[str, Any]) -> None:
            listed = event["type"] is None
            self._store.see(dict(event["object"]), deleted=event["type"] == "DELETED", listed=listed)
            if listed:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._listed_again.set)

        kopf = KopfThread(served, changed)
        kopf.start()
        self._watched = served or (None,)
        self.started.set()
        waiters: list[asyncio.Future[Any]] = [asyncio.create_task(event.wait()) for event in (stop, self._regroup)]
        try:
            await asyncio.wait((kopf.ended, *waiters), return_when=asyncio.FIRST_COMPLETED)
            failed = kopf.ended.exception() if kopf.ended.done() else None
            if not kopf.ended.done() or stop.is_set():
                return
            log.debug("kopf has ended: %s", failed)
            await self._compared(stop, failed)
            if self._served() == served and time.monotonic() - began < LASTING_SECONDS:
                raise _failure(failed)
            log.warning("%s; it begins anew", _failure(failed))
        finally:
            for waiter in waiters:
                waiter.cancel()
            await kopf.end()

    async def _compared(self, stop: asyncio.Event, failed: BaseException | None = None) -> None:
        """Looks which namespaces can be read, as soon as the API server tells. Raises WatchFailed where none can."""
        while not stop.is_set():
            try:
                await asyncio.to_thread(self.compare)
                return
            except ApiError as error:
                if error.status in (401, 403, 404):
                    raise _failure(failed or error) from error
                log.debug("services are not compared: %s", error.message)
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), AWAY_SECONDS)

    async def synced(self) -> None:
        """Waits until kopf has shown what is there. ``run`` tells where it does not."""
        await self.started.wait()
        while True:
            # Whatever stands in the way, such as a missing right, kopf meets as well, and ``run`` tells of it.
            with contextlib.suppress(ApiError):
                # A list of thousands, which kopf's own is not to wait for: asked for once, but some may go meanwhile.
                there = await asyncio.to_thread(self._there)
                for _ in range(LOOKS):
                    if not self._hidden(there):
                        return
                    await asyncio.sleep(LOOK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    async def _compare_forever(self) -> None:
        await self.started.wait()
        while True:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                seconds = COMPARE_SEVERAL_SECONDS if self._several else COMPARE_SECONDS
                await asyncio.wait_for(self._listed_again.wait(), seconds)
            await asyncio.sleep(COMPARE_SOON_SECONDS)
            self._listed_again.clear()
            try:
                hidden = await asyncio.to_thread(self.compare)
                if set(self._served() or (None,)) != set(self._watched):
                    self._regroup.set()
                elif hidden:
                    await self._wait_for(hidden)
            except ApiError as error:
                log.debug("services are not compared: %s", error.message)
                self._listed_again.set()

    async def _wait_for(self, hidden: set[str]) -> None:
        """kopf asks only once what the API server serves; where that was too early, it waits without a word."""
        for _ in range(int(SHOW_SECONDS)):
            await asyncio.sleep(1.0)
            if not hidden & await asyncio.to_thread(self._hidden):
                return
        raise WatchFailed(f"{len(hidden)} VLMServices are there, but no event tells of them: starting again")

    def compare(self) -> set[str]:
        """Forgets the services that are gone. Returns the uids of those that kopf should have shown, but has not.

        Raises ApiError, and WatchFailed where none of several namespaces can be served.
        """
        known = self._store.identities()
        there = self._there()
        uids = set().union(*there.values())
        for namespace in self._refused:
            self._store.forget(namespace)
        for key, name, uid in known:
            if key.namespace not in self._refused and uid not in uids:
                gone = {"namespace": key.namespace, "name": name, "uid": uid, "resourceVersion": ""}
                self._store.see({"metadata": gone}, deleted=True)
        return self._hidden(there)

    def _served(self) -> list[str]:
        return [ns for ns in self._namespaces if ns not in self._refused]

    def _hidden(self, there: Mapping[str | None, set[str]] | None = None) -> set[str]:
        shown = {uid for _, _, uid in self._store.identities()}
        found = self._there() if there is None else there
        return {uid for ns, some in found.items() if ns in self._watched for uid in some - shown}

    def _there(self) -> dict[str | None, set[str]]:
        """The uids of all services, by namespace that can be served."""
        if not self._several:
            everywhere: list[str | None] = [None]
            return {ns: self._client.uids(kinds.VLM_SERVICE, ns) for ns in self._namespaces or everywhere}
        there: dict[str | None, set[str]] = {}
        refused: dict[str, str] = {}
        for ns in self._namespaces:
            try:
                if (why := self._reading.refusal(ns)) is None:
                    there[ns] = self._client.uids(kinds.VLM_SERVICE, ns)
                    continue
            except ApiError as error:
                if error.status != 403:
                    raise
                why = error.message
            refused[ns] = why
        self._tell(refused)
        if not there:
            raise WatchFailed("; ".join(sorted(set(refused.values()))))
        return there

    def _tell(self, refused: dict[str, str]) -> None:
        before, self._refused = self._refused, refused
        for ns in refused.keys() - before.keys():
            log.warning(
                "namespace %s is not served until it can be read; it is tried again and again: %s", ns, refused[ns]
            )
        for ns in before.keys() - refused.keys():
            log.warning("namespace %s can be read again and is served", ns)


def _failure(error: BaseException | None) -> WatchFailed:
    return WatchFailed(f"the watch for VLMServices has failed: {error or 'it ended'}")
