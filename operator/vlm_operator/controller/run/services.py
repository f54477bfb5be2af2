"""The watch of VLMServices: kopf's settings, and a check for what kopf does not report.

kopf keeps no objects. When a watch breaks it lists again and reports nothing of what was deleted meanwhile.
"""

import asyncio
import itertools
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import kopf

from vlm_api.names import FIELD_MANAGER
from vlm_operator.controller.run.cache import Store
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.reflector import LAST_BACKOFF_SECONDS, PAGE

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 30.0
# Checks in a row at which kopf has reported none of the services that exist.
SILENT_CHECKS: Final = 3
# Objects that wait for the store. kopf lists faster than the store packs, and thousands at once are hundreds of MiB.
WAITING_OBJECTS: Final = 64


class WatchFailed(Exception):
    """A watch cannot start or continue, for example without rights."""


class _Backoffs:
    """Retries without end: kopf would stop all watches after the eighth error of one, such as of a namespace without its Role."""

    def __iter__(self) -> Iterator[float]:
        delays = itertools.chain((1.0, 2.0, 5.0), itertools.repeat(LAST_BACKOFF_SECONDS))
        return (delay * random.uniform(0.8, 1.2) for delay in delays)


class _NoDiffs(kopf.DiffBaseStorage):
    """No handler asks what has changed. kopf's own storage copies the object several times for each event, to tell."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing."""


def settings() -> kopf.OperatorSettings:
    """kopf with pages and time-outs, and without everything that writes.

    There may be event handlers only: any other kind makes kopf write annotations and finalizers.
    """
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    # Otherwise kopf needs rights to list and watch CRDs and namespaces.
    chosen.scanning.disabled = True
    # Thousands of services with their plans are hundreds of MiB at once (751 at the start of 5,000), so they are read in
    # pages, and each object is dropped after its event (kopf's defaults: one page; 5 s).
    chosen.watching.chunk_size = PAGE
    chosen.queueing.idle_timeout = 0.1
    chosen.persistence.diffbase_storage = _NoDiffs()
    # A watch checks the rights only when it starts.
    chosen.watching.server_timeout = 300
    chosen.watching.connect_timeout = 10
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 10
    chosen.networking.error_backoffs = _Backoffs()
    return chosen


async def run_kopf(
    namespaces: Sequence[str],
    stop: asyncio.Event,
    *,
    on_start: Callable[[], Awaitable[None]],
    on_event: Callable[[Mapping[str, Any]], None],
    on_end: Callable[[], Awaitable[None]],
) -> None:
    """kopf as the main task: it takes the signals, calls ``on_start`` before it watches the services of these namespaces (of
    all, if there are none), ``on_event`` for each raw event, and ``on_end`` after the watches have stopped.

    Returns after a signal or once ``stop`` is set. Raises WatchFailed if kopf gives up.
    """
    registry, kind = kopf.OperatorRegistry(), kinds.VLM_SERVICE

    async def start(**_: Any) -> None:
        await on_start()

    async def end(**_: Any) -> None:
        await on_end()

    async def event(event: Mapping[str, Any], **_: Any) -> None:
        try:
            on_event(event)
        except Exception:
            log.exception("internal error in an event of a VLMService")

    kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(start)
    kopf.on.cleanup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(end)
    kopf.on.login(registry=registry)(kopf.login_via_client)
    kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(event)
    try:
        await kopf.operator(
            registry=registry,
            settings=settings(),
            clusterwide=not namespaces,
            namespaces=list(namespaces),
            standalone=True,
            # Otherwise kopf asks for the user's name, which an id without an entry in /etc/passwd does not have.
            identity=FIELD_MANAGER,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
            stop_flag=stop,
        )
    except Exception as error:
        raise WatchFailed(f"the watch of VLMServices failed: {error}") from error


class _Event(NamedTuple):
    found: Json
    deleted: bool
    listed: bool


class Intake(threading.Thread):
    """Puts the objects of kopf's events into the store, in a thread of its own: the event loop must not stop for the tens of
    milliseconds that a large object takes.

    Only the newest object of each service waits. Once many services wait, the caller does the work for others.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(name="services", daemon=True)
        self._store = store
        self._changed = threading.Condition()
        self._waiting: dict[str, _Event] = {}
        """Uid -> the newest event."""
        self._working_on: str | None = None
        self._stopping = False

    def put(self, event: Mapping[str, Any]) -> None:
        """A raw event of kopf. Only from one thread."""
        found, kind = event["object"], event["type"]
        uid, new = str(found["metadata"]["uid"]), _Event(found, kind == "DELETED", kind is None)
        with self._changed:
            before = self._waiting.get(uid)
            # An object must not overtake an older state of itself.
            if before is not None or uid == self._working_on or len(self._waiting) < WAITING_OBJECTS:
                # A uid that was deleted never comes back.
                if before is None or not before.deleted:
                    self._waiting[uid] = new._replace(listed=new.listed or (before is not None and before.listed))
                    self._changed.notify()
                return
        self._update(new)

    def stop(self) -> None:
        """Ends the thread after the object under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        """Takes the services in the order in which they came."""
        while True:
            with self._changed:
                self._working_on = None
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                self._working_on = next(iter(self._waiting))
                event = self._waiting.pop(self._working_on)
            self._update(event)
            del event

    def _update(self, event: _Event) -> None:
        try:
            self._store.update(event.found, deleted=event.deleted, listed=event.listed)
        except Exception:
            log.exception("internal error in an event of a VLMService")


class Reads(Protocol):
    """The watches of everything else that services depend on."""

    def refusal(self, namespace: str) -> str | None:
        """Why services of the namespace cannot be served; None if everything has been read."""


class Services:
    """Compares kopf's view with the API server: one request that reads one object per namespace, unless the numbers differ."""

    def __init__(self, client: Client, store: Store, namespaces: Sequence[str], others: Reads) -> None:
        self._client, self._store, self._others = client, store, others
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._refused: dict[str, str] = {}
        """Namespaces, of several, that cannot be read, with the reason. Their services are hidden until they can."""
        self._silent: dict[str | None, int] = {}
        """Namespace -> checks in a row without any report from kopf."""

    def check(self) -> None:
        """Forgets services that were deleted unnoticed, and hides namespaces that cannot be read.

        Raises ApiError; WatchFailed if none of several namespaces can be read or kopf reports nothing.
        """
        refused: dict[str, str] = {}
        for namespace in self._namespaces:
            if namespace is None or len(self._namespaces) == 1:
                self._compare(namespace)
            elif (why := self._refusal(namespace)) is not None:
                refused[namespace] = why
        self._update_refused(refused)
        if len(refused) == len(self._namespaces):
            raise WatchFailed("; ".join(sorted(set(refused.values()))))

    def _refusal(self, namespace: str) -> str | None:
        if (why := self._others.refusal(namespace)) is None:
            try:
                self._compare(namespace)
            except ApiError as error:
                if error.status != 403:
                    raise
                return error.message
        return why

    def _compare(self, namespace: str | None) -> None:
        known = self._store.identities(namespace)
        count = self._client.count(kinds.VLM_SERVICE, namespace)
        self._silent[namespace] = self._silent.get(namespace, 0) + 1 if count and not known else 0
        # kopf runs discovery once. If the API server did not serve the CRD yet, kopf waits silently forever.
        if self._silent[namespace] >= SILENT_CHECKS:
            raise WatchFailed(f"kopf reports none of {count} VLMServices: starting again")
        if not known or count == len(known):
            return
        uids = self._client.uids(kinds.VLM_SERVICE, namespace)
        for key, uid in known:
            if uid not in uids:
                deleted = {"namespace": key.namespace, "name": key.name, "uid": uid, "resourceVersion": ""}
                self._store.update({"metadata": deleted}, deleted=True)

    def _update_refused(self, refused: dict[str, str]) -> None:
        before, self._refused = self._refused, refused
        for namespace in refused.keys() - before.keys():
            log.warning("namespace %s is not served until it can be read (retrying): %s", namespace, refused[namespace])
            self._store.hide(namespace)
        for namespace in before.keys() - refused.keys():
            log.warning("namespace %s can be read again and is served", namespace)
            self._store.show(namespace)
