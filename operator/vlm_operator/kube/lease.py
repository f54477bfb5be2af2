"""Leader election by a Lease: of several operators only one works."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from vlm_operator.kube.client import ApiError, Client
from vlm_operator.kube.kinds import LEASE

log = logging.getLogger(__name__)

# A leader that cannot renew stops after 6 s. One that died is replaced after 10 s, counted from when another first saw its
# last renewal, which may be one retry late, and is noticed at the next retry: at most 13 s, so that fail-over takes less
# than the 15 s of client-go's usual lease.
LEASE_SECONDS: Final = 10
RENEW_DEADLINE_SECONDS: Final = 6.0
RETRY_SECONDS: Final = 1.5
# To connect, and to wait for an answer: a connection that went silent must leave time for another before the deadline.
TIMEOUT_SECONDS: Final = (2.0, 2.5)


@dataclass
class _Seen:
    """A lease as somebody else last renewed it, and when that was seen by our own clock."""

    record: tuple[Any, Any]
    at: float


class LeaseLock:
    """One contender. Times of other machines are never compared with ours: a lease counts as given up when it was not
    renewed for its duration since we first saw its present state."""

    def __init__(
        self, client: Client, namespace: str, name: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._seen: _Seen | None = None

    def try_once(self) -> bool:
        """Takes or renews the lease; False while another holds it. Raises ApiError where the API server fails."""
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
        """Gives the lease up, so that the next operator need not wait for it to expire."""
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
        if self._seen is None or self._seen.record != record:
            self._seen = _Seen(record, self._clock())
        return self._clock() - self._seen.at > float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)

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
