"""A pod's log while it is written, and commands inside its containers: the two streams of the API server."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import urllib3
import websocket
from kubernetes import client as kubernetes_client
from kubernetes import stream as kubernetes_stream

from vlm_operator.kube.client import ApiError

# A log that is silent for longer than this is asked for again: proxies on the way cut silent connections.
SILENT_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 5.0
# The channels of a command that runs in a container.
OUTPUT: Final = 1
ERROR_OUTPUT: Final = 2
OUTCOME: Final = 3
COMPLAINT_LENGTH: Final = 4000


def follow_log(namespace: str, pod: str, container: str) -> Iterator[str]:
    """Each line of the container's log, from its first, until the container ends or the connection does.

    Raises ApiError where the log cannot be read, such as before the container has started. A connection that ends
    early ends the lines without an error: the caller asks again and skips what it has read.
    """
    api = kubernetes_client.CoreV1Api()
    rest = ""
    try:
        answer: Any = api.read_namespaced_pod_log(
            pod, namespace, container=container, follow=True, _preload_content=False,
            _request_timeout=(CONNECT_SECONDS, SILENT_SECONDS),
        )  # fmt: skip
        for part in answer.stream(decode_content=True):
            *lines, rest = (rest + part.decode(errors="replace")).split("\n")
            yield from lines
    except kubernetes_client.ApiException as error:
        raise ApiError(
            error.status or 0, str(error.reason), f"the log of pod {pod} cannot be read: {error.reason}"
        ) from error
    except (urllib3.exceptions.HTTPError, OSError):
        return
    if rest:
        yield rest


def run_in(namespace: str, pod: str, container: str, command: Sequence[str], line: str = "") -> Iterator[str]:
    """Each line that the command prints inside the container, on standard output. ``line`` is its standard input.

    Raises ApiError where it cannot be run, and where it ends with another code than 0: then with the end of what it
    wrote to standard error.
    """
    api = kubernetes_client.CoreV1Api()
    try:
        running: Any = kubernetes_stream.stream(
            api.connect_get_namespaced_pod_exec, pod, namespace, container=container, command=list(command),
            stdout=True, stderr=True, stdin=True, tty=False, _preload_content=False,
        )  # fmt: skip
    except kubernetes_client.ApiException as error:
        code, why = _refusal(str(error.reason))
        raise ApiError(code, "ExecRefused", f"no command can be run in pod {pod}: {why}") from error
    rest, complaints = "", ""
    try:
        running.write_stdin(f"{line}\n")
        is_open = True
        while is_open:
            running.update(timeout=1)
            # Asked before what has come is taken: what came last is taken after the connection has ended.
            is_open = running.is_open()
            complaints = (complaints + running.read_channel(ERROR_OUTPUT))[-COMPLAINT_LENGTH:]
            *lines, rest = (rest + running.read_channel(OUTPUT)).split("\n")
            yield from lines
        if rest:
            yield rest
    except (websocket.WebSocketException, OSError) as error:
        raise ApiError(0, "ConnectionLost", f"the connection to the command in pod {pod} broke off: {error}") from error
    else:
        outcome = running.read_channel(OUTCOME)
        if failed := _failure(outcome, complaints):
            raise ApiError(
                0, "CommandFailed" if outcome else "ConnectionLost", f"the command in pod {pod} failed: {failed}"
            )
    finally:
        running.close()


def _refusal(reason: str) -> tuple[int, str]:
    """Code and message of a handshake that was refused: the client has the API server's Status behind its own words."""
    own, _, body = reason.rpartition(" -+-+- ")
    try:
        status = json.loads(body)
        return int(status["code"]), str(status["message"])
    except (ValueError, KeyError, TypeError):
        return 0, (own or reason).split(" -+-+- ")[0]


def _failure(outcome: str, complaints: str) -> str | None:
    """Why the command failed, from the metav1.Status that the kubelet sends when it has ended; None where it did not."""
    try:
        status = json.loads(outcome)
    except ValueError:
        return "the connection to it broke off"
    if status.get("status") == "Success":
        return None
    lines = complaints.strip().splitlines()
    return str(lines[-1] if lines else status.get("message") or "no reason was given")
