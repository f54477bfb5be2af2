"""Leader election by a Lease: of several operators only one works."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from vlm_operator.kube.client import ApiError, Client
from vlm_operator.kube.kinds import LEASE

log = logging.getLogger(__name__)

# A leader that cannot renew stops after 6 s. A dead one is replaced 10 s after another has first observed its last renewal,
# which may be one retry late, at the next retry: after at most 13 s, less than the 15 s of client-go's default lease.
LEASE_SECONDS: Final = 10
RENEW_DEADLINE_SECONDS: Final = 6.0
RETRY_SECONDS: Final = 1.5
# To connect, and to wait for an answer. A silent connection must leave time for another before the deadline.
TIMEOUT_SECONDS: Final = (2.0, 2.5)


class LeaseLost(Exception):
    """Another operator works now, or the API server could not be reached for too long."""


@dataclass
class _Observed:
    """A lease as another holder last renewed it, and when we observed that by our own clock."""

    record: tuple[Any, Any]
    at: float


class LeaseLock:
    """One contender. Times of other machines are never compared with ours: a lease has expired if it was not renewed for its
    duration since we first observed its present state."""

    def __init__(
        self, client: Client, namespace: str, name: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._observed: _Observed | None = None

    def try_once(self) -> bool:
        """Takes or renews the lease; False while another holds it. Raises ApiError."""
        lease = self._client.get(LEASE, self._namespace, self._name)
        try:
            if lease is None:
                self._client.create(LEASE, self._lease({}, transitions=0, taken=True))
                return True
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") == self._identity:
                self._client.replace(LEASE, {**lease, "spec": self._spec(spec, spec.get("leaseTransitions", 0), False)})
                return True
            if spec.get("holderIdentity") and not self._expired(spec):
                return False
            transitions = int(spec.get("leaseTransitions") or 0) + 1
            self._client.replace(LEASE, {**lease, "spec": self._spec(spec, transitions, True)})
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    def release(self) -> None:
        """Gives the lease up, so that the next operator does not wait for it to expire."""
        try:
            lease = self._client.get(LEASE, self._namespace, self._name)
            if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                spec = {**self._spec(lease["spec"], lease["spec"].get("leaseTransitions", 0), False)}
                spec |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._client.replace(LEASE, {**lease, "spec": spec})
        except ApiError as error:
            log.warning("lease not released, it expires in %d s: %s", LEASE_SECONDS, error.message)

    def _expired(self, spec: dict[str, Any]) -> bool:
        record = (spec.get("holderIdentity"), spec.get("renewTime"))
        if self._observed is None or self._observed.record != record:
            self._observed = _Observed(record, self._clock())
        return self._clock() - self._observed.at > float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    def _lease(self, spec: dict[str, Any], *, transitions: int, taken: bool) -> dict[str, Any]:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec(spec, transitions, taken),
        }

    def _spec(self, spec: dict[str, Any], transitions: int, taken: bool) -> dict[str, Any]:
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": now if taken else spec.get("acquireTime") or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


class Election(threading.Thread):
    """Takes the lease and renews it, in a thread of its own: an event loop that is busy must neither lose the lease nor
    miss that it is lost. The callbacks run in this thread."""

    def __init__(
        self,
        lock: LeaseLock,
        *,
        on_standby: Callable[[], None],
        on_held: Callable[[], None],
        on_lost: Callable[[Exception], None],
    ) -> None:
        """``on_lost`` gets LeaseLost, or an internal error."""
        super().__init__(name="lease", daemon=True)
        self._lock = lock
        self._on_standby, self._on_held, self._on_lost = on_standby, on_held, on_lost
        self._stopping = threading.Event()
        self.held = False
        """Whether the lease was taken."""

    def stop(self) -> None:
        """Ends the thread after the request under way."""
        self._stopping.set()

    def release(self) -> None:
        """Gives the lease up. Only after the thread has ended: a renewal would take it again."""
        self._lock.release()

    def run(self) -> None:
        """Waits for the lease, then keeps it."""
        # A request may last longer than its time-outs, such as in a slow lookup, so the deadline needs another thread.
        with ThreadPoolExecutor(1, thread_name_prefix="lease-request") as requests:
            try:
                renewed = self._acquire()
                if renewed is not None:
                    self._keep(requests, renewed)
            except Exception as error:
                self._on_lost(error)

    def _acquire(self) -> float | None:
        """When it took the lease; None once it is stopped."""
        standby = False
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                if self._lock.try_once():
                    self.held = True
                    self._on_held()
                    return began
                if not standby:
                    self._on_standby()
                    standby = True
            except ApiError as error:
                log.warning("the lease cannot be read (retrying): %s", error.message)
            self._stopping.wait(RETRY_SECONDS)
        return None

    def _keep(self, requests: ThreadPoolExecutor, renewed: float) -> None:
        # Another operator takes the lease soon after the deadline, whatever a request is waiting for.
        while not self._stopping.wait(min(RETRY_SECONDS, renewed + RENEW_DEADLINE_SECONDS - time.monotonic())):
            began = time.monotonic()
            left = renewed + RENEW_DEADLINE_SECONDS - began
            if left <= 0:
                raise LeaseLost("the lease could not be renewed")
            try:
                if not requests.submit(self._lock.try_once).result(left):
                    raise LeaseLost("another operator took the lease")
                renewed = began
            except LateError:
                raise LeaseLost("the lease could not be renewed: no answer in time") from None
            except ApiError as error:
                log.warning("the lease was not renewed: %s", error.message)
