"""A pod's log while it is written, and commands inside its containers: the two streams of the API server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import urllib3
from kubernetes import client as kubernetes_client
from kubernetes import stream as kubernetes_stream

from vlm_operator.kube.client import ApiError

# A log that is silent for longer than this is asked for again: proxies on the way cut silent connections.
SILENT_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 5.0


def follow_log(namespace: str, pod: str, container: str) -> Iterator[str]:
    """Each line of the container's log, from its first, until the container ends or the connection does.

    Raises ApiError where the log cannot be read, such as before the container has started. A connection that ends
    early ends the lines without an error: the caller asks again and passes over what it has seen.
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


def run_in(namespace: str, pod: str, container: str, command: Sequence[str]) -> Iterator[str]:
    """Each line that the command prints inside the container, on standard output.

    Raises ApiError where it cannot be run, and where it ends with another code than 0: then with the end of what it
    said on standard error.
    """
    api = kubernetes_client.CoreV1Api()
    try:
        running: Any = kubernetes_stream.stream(
            api.connect_get_namespaced_pod_exec, pod, namespace, container=container, command=list(command),
            stdout=True, stderr=True, stdin=False, tty=False, _preload_content=False,
        )  # fmt: skip
    except kubernetes_client.ApiException as error:
        said = str(error.reason or error)
        raise ApiError(error.status or 0, "ExecRefused", f"no command can be run in pod {pod}: {said}") from error
    rest, complaints = "", ""
    try:
        while running.is_open():
            running.update(timeout=1)
            if running.peek_stderr():
                complaints = (complaints + running.read_stderr())[-4000:]
            if running.peek_stdout():
                *lines, rest = (rest + running.read_stdout()).split("\n")
                yield from lines
        if rest:
            yield rest
        if running.returncode:
            last = complaints.strip().splitlines()[-1:] or [f"exit code {running.returncode}"]
            raise ApiError(0, "CommandFailed", f"the command in pod {pod} failed: {last[0]}")
    finally:
        running.close()
