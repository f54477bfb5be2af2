"""Objects that a command creates for as long as it runs: deleted however the command ends. Ctrl-C, ``kill`` and a closed terminal
end the command, and do not stop the deletion."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, TypeVar

from vlm_operator.cli.cluster import Connection, cluster_errors
from vlm_operator.documents import Document
from vlm_operator.errors import ClusterError
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError

T = TypeVar("T")

PAUSE_SECONDS: Final = 1.0
# An API server that restarts, or a proxy in front of it.
AWAY_SECONDS: Final = 60.0
# How long after an unanswered request its object may still appear.
LATE_SECONDS: Final = 5.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAIT: Final = b"deleting what was created in the cluster: wait for it, or it stays\n"
STANDARD_ERROR: Final = 2


@contextmanager
def existing(
    connection: Connection,
    kind: kinds.Kind,
    manifest: Document,
    *,
    remains: Callable[[], object],
    gone_seconds: float,
    left: list[str],
) -> Iterator[Document]:
    """Creates the object, and deletes it however the body ends, even if it is unknown whether it was created.

    Waits at most ``gone_seconds`` until ``remains`` is false. What could not be deleted is printed to standard error and added
    to ``left``. ``manifest`` has a unique name. Raises ClusterError.
    """
    created: Document | None = None
    refused = tried = False

    def end() -> None:
        nonlocal tried
        with shielded():
            if not tried:
                tried = True
                if _delete(connection, kind, manifest, created, left):
                    wait_while(remains, gone_seconds)

    try:
        with cluster_errors():
            try:
                created = connection.client.create(kind, manifest)
            except ApiError as error:
                refused = 400 <= error.status < 500
                raise
        yield created
    except KeyboardInterrupt:
        print(f"deleting {kind.kind} {manifest['metadata']['name']}", file=sys.stderr)
        raise
    finally:
        if not refused:
            try:
                end()
            except KeyboardInterrupt:
                # The signal may have come before the shield was up; no other will raise.
                end()
                raise


def _delete(
    connection: Connection, kind: kinds.Kind, manifest: Document, created: Document | None, left: list[str]
) -> bool:
    """Whether the object was deleted, or never existed. ``created`` None: it may still appear, LATE_SECONDS long."""
    name, begun = str(manifest["metadata"]["name"]), time.monotonic()
    while True:
        try:
            live = created or connection.client.get(kind, connection.namespace, name)
            if live is not None:
                connection.client.delete(kind, live)
            if live is not None or time.monotonic() > begun + LATE_SECONDS:
                return True
        except ApiError as error:
            if error.refused or time.monotonic() > begun + AWAY_SECONDS:
                step = f"`kubectl -n {connection.namespace} delete {kind.plural} {name}`"
                why = f"{kind.kind} {name} could not be deleted ({error.message}): run {step}"
                left.append(why)
                print(f"error: {why}", file=sys.stderr)
                return False
        time.sleep(PAUSE_SECONDS)


def wait_while(remains: Callable[[], object], seconds: float) -> None:
    """Waits at most so long. Does not raise if the cluster does not answer: the result must not be lost."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(ClusterError):
            if not remains():
                return
        time.sleep(PAUSE_SECONDS / 4)


def patiently(ask: Callable[[], T]) -> T:
    """The answer, also if the API server is away for a moment. Raises ClusterError."""
    deadline = time.monotonic() + AWAY_SECONDS
    while True:
        try:
            return ask()
        except ClusterError as error:
            cause = error.__cause__
            if not isinstance(cause, ApiError) or cause.refused or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS)


def _only_wait(number: int, frame: FrameType | None) -> None:
    os.write(STANDARD_ERROR, WAIT)  # print may be interrupted in the middle of itself


@contextmanager
def _handling(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, the signals have that handler, except those that are ignored outside, as under ``nohup``."""
    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ends_on_signals() -> Iterator[None]:
    """Inside, the first of SIGINT, SIGTERM and SIGHUP raises KeyboardInterrupt, and later ones only print WAIT."""
    with _handling(_end):
        yield


def _end(number: int, frame: FrameType | None) -> None:
    for each in SIGNALS:
        if signal.getsignal(each) is _end:
            signal.signal(each, _only_wait)
    raise KeyboardInterrupt


@contextmanager
def shielded() -> Iterator[None]:
    """The body runs to its end; a signal that came meanwhile ends the command afterwards, as outside."""
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)
        _only_wait(number, frame)

    with _handling(hold):
        yield
    if held and signal.getsignal(held[0]) is not _only_wait:
        signal.raise_signal(held[0])
