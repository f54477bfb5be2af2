"""What a command makes in the cluster for as long as it runs: removed however the command ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from vlm_operator.cli.cluster import Connection, asking
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.signals import shielded
from vlm_operator.documents import Document
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError

T = TypeVar("T")

PAUSE_SECONDS: Final = 1.0
# An API server that is started anew, or a proxy in front of it.
AWAY_SECONDS: Final = 60.0
# How long what was asked for without an answer may still come to be there.
LATE_SECONDS: Final = 5.0


@contextmanager
def existing(
    connection: Connection,
    kind: kinds.Kind,
    manifest: Document,
    *,
    there: Callable[[], object],
    gone_seconds: float,
    left: list[str],
) -> Iterator[Document]:
    """Makes it, and removes it whatever happens, also where nobody knows whether it was made.

    Waits at most ``gone_seconds`` until ``there`` says that nothing of it is there any more. What could not be removed is
    told on standard error and added to ``left``. ``manifest`` has a name that no other has. Raises ClusterError.
    """
    made: Document | None = None
    refused = False
    try:
        with asking():
            try:
                made = connection.client.create(kind, manifest)
            except ApiError as error:
                refused = 400 <= error.status < 500
                raise
        yield made
    except KeyboardInterrupt:
        print(f"removing {kind.kind} {manifest['metadata']['name']}", file=sys.stderr)
        raise
    finally:
        if not refused:
            removal = _Removal(connection, kind, manifest, made, left)
            try:
                removal.run(there, gone_seconds)
            except KeyboardInterrupt:
                # It may have come before the shield was up; no other will raise.
                removal.run(there, gone_seconds)
                raise


class _Removal:
    """The end of one object. May be run again."""

    def __init__(
        self, connection: Connection, kind: kinds.Kind, manifest: Document, made: Document | None, left: list[str]
    ) -> None:
        self._connection, self._kind, self._made, self._left = connection, kind, made, left
        self._name = str(manifest["metadata"]["name"])
        self._done = False

    def run(self, there: Callable[[], object], gone_seconds: float) -> None:
        """Removes it and waits until it is gone."""
        with shielded():
            if not self._done:
                self._done = True
                if self._removed():
                    wait_while(there, gone_seconds)

    def _removed(self) -> bool:
        """Whether there is nothing of it, or soon will not be."""
        deadline = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                found = self._made or self._late()
                if found is not None:
                    self._connection.client.delete(self._kind, found)
                return True
            except ApiError as error:
                if error.refused or time.monotonic() > deadline:
                    self._tell(error)
                    return False
            time.sleep(PAUSE_SECONDS)

    def _late(self) -> Document | None:
        """What was made though nobody said so."""
        deadline = time.monotonic() + LATE_SECONDS
        while True:
            found = self._connection.client.get(self._kind, self._connection.namespace, self._name)
            if found is not None or time.monotonic() > deadline:
                return found
            time.sleep(PAUSE_SECONDS)

    def _tell(self, error: ApiError) -> None:
        step = f"`kubectl -n {self._connection.namespace} delete {self._kind.plural} {self._name}`"
        why = f"{self._kind.kind} {self._name} could not be removed ({error.message}): remove it with {step}"
        self._left.append(why)
        print(f"error: {why}", file=sys.stderr)


def wait_while(there: Callable[[], object], seconds: float) -> None:
    """Waits. Where the cluster does not answer, what was removed counts as there: what was measured must not be lost."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(ClusterError):
            if not there():
                return
        time.sleep(PAUSE_SECONDS / 4)


def patiently(ask: Callable[[], T]) -> T:
    """The answer. An API server that is away for a moment takes no hour's work with it. Raises ClusterError."""
    deadline = time.monotonic() + AWAY_SECONDS
    while True:
        try:
            return ask()
        except ClusterError as error:
            cause = error.__cause__
            if not isinstance(cause, ApiError) or cause.refused or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS)
