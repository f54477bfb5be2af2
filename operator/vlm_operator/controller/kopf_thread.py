"""kopf, which watches the VLMServices, in a thread and a loop of its own.

When kopf ends, for whatever reason, it cancels all tasks of its loop that it did not find there at its start; and on the
main thread it takes the handlers of signals. In a loop of its own it can be ended and begun anew while the operator works.

There are event handlers only: handlers of any other kind would make kopf write annotations and finalizers into users'
objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import kopf

from vlm_api.names import FIELD_MANAGER
from vlm_operator.kube import kinds

# Objects of a page.
PAGE: Final = 100
IDLE_SECONDS: Final = 0.5
ENDING_SECONDS: Final = 15.0
# What these say of a failure, with a traceback, whoever waits for ``ended`` tells in a sentence; and that the thread is
# not the one that signals come to is our wish.
for _name in ("running", "orchestration"):
    logging.getLogger(f"kopf._core.reactor.{_name}").setLevel(logging.CRITICAL)


class KopfThread(threading.Thread):
    """One watch of all namespaces, or of these, from its start until ``end`` or until kopf gives up."""

    def __init__(self, namespaces: Sequence[str], changed: Callable[[Mapping[str, Any]], None]) -> None:
        """``changed`` gets kopf's raw events, in this thread. To be made inside the loop that waits for ``ended``."""
        super().__init__(name="kopf", daemon=True)
        self._namespaces, self._changed = namespaces, changed
        self._waiting = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.ended: asyncio.Future[None] = self._waiting.create_future()
        """Done when kopf has ended, with its exception where it failed."""

    def run(self) -> None:
        """Runs kopf."""
        error: BaseException | None = None
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._operate())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        except (Exception, asyncio.CancelledError) as found:
            error = found
        finally:
            self._loop.close()
            with contextlib.suppress(RuntimeError):
                self._waiting.call_soon_threadsafe(self._tell, error)

    async def end(self) -> None:
        """Ends kopf, and waits until it has ended."""
        # It may have closed its loop already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.wait((self.ended,), timeout=ENDING_SECONDS)
        if self.ended.done():
            self.ended.exception()

    def _tell(self, error: BaseException | None) -> None:
        if error is None or isinstance(error, asyncio.CancelledError):
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    async def _operate(self) -> None:
        registry, kind = kopf.OperatorRegistry(), kinds.VLM_SERVICE
        kopf.on.login(registry=registry, id="login")(kopf.login_via_client)
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id="service")(self._event)
        await kopf.operator(
            registry=registry,
            settings=settings(),
            clusterwide=not self._namespaces,
            namespaces=list(self._namespaces),
            standalone=True,
            # Otherwise kopf asks for the user's name, which an id without an entry in /etc/passwd does not have.
            identity=FIELD_MANAGER,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
            stop_flag=self._stop,
        )

    async def _event(self, event: Mapping[str, Any], **_: Any) -> None:
        self._changed(event)


def settings() -> kopf.OperatorSettings:
    """kopf without everything that writes, and with time-outs."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.peering.standalone = True
    # Without it kopf would need to list and watch CRDs and namespaces.
    found.scanning.disabled = True
    # It would kill the whole process some time after a failure.
    found.process.ultimate_exiting_timeout = None
    # Thousands of services with their plans are hundreds of megabytes at once: they come in pages, and none is kept
    # longer than its event takes (kopf's own values are one page, and 5 s).
    found.watching.chunk_size = PAGE
    found.queueing.idle_timeout = IDLE_SECONDS
    found.networking.request_timeout = 30
    found.networking.connect_timeout = 10
    found.watching.connect_timeout = 10
    return found
