"""A command inside a container, over a stand-in for the websocket: every line once, and why it failed."""

import json
from typing import Any

import pytest
import websocket

from vlm_operator.kube import pod_streams
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.pod_streams import ERROR_OUTPUT, OUTCOME, OUTPUT, run_in

SUCCESS = (OUTCOME, json.dumps({"status": "Success"}))
FAILURE = (OUTCOME, json.dumps({"status": "Failure", "message": "command terminated with exit code 1"}))


class Socket:
    """Frames, one batch for each look; it is closed with the last batch, as a real one may be."""

    def __init__(self, *batches: list[tuple[int, str]]) -> None:
        self._batches, self._channels, self.closed = list(batches), {}, False  # type: ignore[var-annotated]

    def update(self, timeout: float) -> None:
        for channel, data in self._batches.pop(0):
            self._channels[channel] = self._channels.get(channel, "") + data

    def write_stdin(self, data: str) -> None:
        self.written = data

    def is_open(self) -> bool:
        return bool(self._batches)

    def read_channel(self, channel: int) -> str:
        return str(self._channels.pop(channel, ""))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(*batches: list[tuple[int, str]]) -> list[str]:
        socket = Socket(*batches)
        monkeypatch.setattr(pod_streams.kubernetes_stream, "stream", lambda *_, **__: socket)
        try:
            return list(run_in("team", "pod", "main", ["true"], "the program"))
        finally:
            assert socket.closed
            assert socket.written == "the program\n"

    return run


def test_lines_are_put_together_from_frames(lines: Any) -> None:
    assert lines([(OUTPUT, "a\nb")], [], [(OUTPUT, "c\nd\n"), (OUTPUT, "e"), SUCCESS]) == ["a", "bc", "d", "e"]


def test_what_comes_with_the_end_of_the_connection_is_not_lost(lines: Any) -> None:
    assert lines([(OUTPUT, "all of it\n"), SUCCESS]) == ["all of it"]


def test_a_command_that_fails_tells_the_last_thing_that_it_said(lines: Any) -> None:
    with pytest.raises(ApiError, match="pod failed: ModuleNotFoundError: no"):
        lines([(ERROR_OUTPUT, "Traceback\n  x\nModuleNotFoundError: no\n")], [FAILURE])
    with pytest.raises(ApiError, match="exit code 1"):
        lines([FAILURE])


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset by peer"), websocket.WebSocketException("lost")])
def test_a_connection_that_is_reset_is_told_as_such(
    error: Exception, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def update(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Socket, "update", update)
    with pytest.raises(ApiError, match=r"the command in pod pod broke off: .*(reset|lost)"):
        lines([(OUTPUT, "half")])


def test_a_connection_that_breaks_off_is_no_success(lines: Any) -> None:
    with pytest.raises(ApiError, match="broke off"):
        lines([(OUTPUT, "half")], [])


@pytest.mark.parametrize(
    ("reason", "code", "said"),
    [
        (
            "Handshake status 403 Forbidden -+-+- {'content-length': '9'} -+-+- "
            '{"kind":"Status","message":"pods \\"p\\" is forbidden","code":403}\n',
            403,
            'no command can be run in pod pod: pods "p" is forbidden',
        ),
        ("[Errno 111] Connection refused", 0, "no command can be run in pod pod: [Errno 111] Connection refused"),
    ],
)
def test_a_refusal_is_told_in_the_api_servers_words(
    reason: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise pod_streams.kubernetes_client.ApiException(status=0, reason=reason)

    monkeypatch.setattr(pod_streams.kubernetes_stream, "stream", refuse)
    with pytest.raises(ApiError) as found:
        list(run_in("team", "pod", "main", ["true"]))
    assert (found.value.status, found.value.message) == (code, said)
