"""kopf's part: it watches the VLMServices. An event only puts the object into the cache, which wakes its reconcile.

There are event handlers only: handlers of any other kind would make kopf write annotations and finalizers into users'
objects. What services are made of is read by watches of our own (``watch``), since kopf keeps no copy to read from.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import kopf

from vlm_api.names import FIELD_MANAGER
from vlm_operator.controller.cache import Store
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client

log = logging.getLogger(__name__)

# After a broken watch kopf lists anew and tells nothing of what went meanwhile: soon after, names are compared.
COMPARE_SOON_SECONDS: Final = 1.0
# And now and then, should all have gone, or should kopf have found nothing to watch when it started.
COMPARE_SECONDS: Final = 60.0
PAGE: Final = 100
IDLE_SECONDS: Final = 0.5
# How long kopf may take to show what is there.
SHOW_SECONDS: Final = 60.0


class WatchFailed(Exception):
    """A watch cannot begin or go on, such as for want of rights."""


class Services:
    """The watch for VLMServices."""

    def __init__(self, client: Client, store: Store, namespaces: Sequence[str]) -> None:
        self._client, self._store, self._namespaces = client, store, namespaces
        self._listed_again = asyncio.Event()
        self.started = asyncio.Event()
        """Set once kopf runs; by then it has put its own handlers of signals in place."""

    async def run(self, stop: asyncio.Event) -> None:
        """Watches until ``stop`` is set. Raises WatchFailed where kopf gives up, or where it does not show what is there."""
        comparing = asyncio.create_task(self._compare_forever())
        watching = asyncio.create_task(self._watch(stop))
        try:
            done, _ = await asyncio.wait((watching, comparing), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            comparing.cancel()
            stop.set()
            await asyncio.wait((watching,))

    async def _watch(self, stop: asyncio.Event) -> None:
        registry, kind = kopf.OperatorRegistry(), kinds.VLM_SERVICE
        kopf.on.login(registry=registry, id="login")(kopf.login_via_client)
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id="service")(self._changed)
        try:
            await kopf.operator(
                registry=registry,
                settings=settings(),
                clusterwide=not self._namespaces,
                namespaces=list(self._namespaces),
                standalone=True,
                # Otherwise kopf asks for the user's name, which an id without an entry in /etc/passwd does not have.
                identity=FIELD_MANAGER,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
                stop_flag=stop,
                ready_flag=self.started,
            )
        except Exception as error:
            raise WatchFailed(f"the watch for VLMServices has failed: {error}") from error

    async def synced(self) -> None:
        """Waits until kopf has shown what is there. ``run`` tells where it does not."""
        while True:
            # Whatever stands in the way, such as a missing right, kopf meets as well, and ``run`` tells of it.
            with contextlib.suppress(ApiError):
                if not await asyncio.to_thread(self._hidden):
                    return
            await asyncio.sleep(0.2)

    async def _changed(self, event: Mapping[str, Any], **_: Any) -> None:
        listed = event["type"] is None
        self._store.see(dict(event["object"]), deleted=event["type"] == "DELETED", listed=listed)
        if listed:
            self._listed_again.set()

    async def _compare_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._listed_again.wait(), COMPARE_SECONDS)
            await asyncio.sleep(COMPARE_SOON_SECONDS)
            self._listed_again.clear()
            try:
                hidden = await asyncio.to_thread(self.compare)
                if hidden:
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
        """Forgets the services that are gone. Returns the uids of those that are there and unknown. Raises ApiError."""
        known = self._store.identities()
        there = self._there()
        for key, name, uid in known:
            if uid not in there:
                gone = {"namespace": key.namespace, "name": name, "uid": uid, "resourceVersion": ""}
                self._store.see({"metadata": gone}, deleted=True)
        return self._hidden(there)

    def _hidden(self, there: set[str] | None = None) -> set[str]:
        return (self._there() if there is None else there) - {uid for _, _, uid in self._store.identities()}

    def _there(self) -> set[str]:
        everywhere: list[str | None] = [None]
        return {uid for ns in self._namespaces or everywhere for uid in self._client.uids(kinds.VLM_SERVICE, ns)}


def settings() -> kopf.OperatorSettings:
    """kopf without everything that writes, and with time-outs."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.peering.standalone = True
    # Without it kopf would need to list and watch CRDs and namespaces.
    found.scanning.disabled = True
    # Thousands of services with their plans are hundreds of megabytes at once: they come in pages, and none is kept
    # longer than its event takes (kopf's own values are one page, and 5 s).
    found.watching.chunk_size = PAGE
    found.queueing.idle_timeout = IDLE_SECONDS
    found.networking.request_timeout = 30
    found.networking.connect_timeout = 10
    found.watching.connect_timeout = 10
    return found
