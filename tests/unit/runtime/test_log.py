"""The container's log: whole lines, in order, without secrets and without the runtime's own requests."""

from __future__ import annotations

import os
import re
import sys
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.runtime.forked import CONTEXT

from vlm_runtime.redact import Redactor
from vlm_runtime.report.log import LONGEST_LINE_BYTES, LineSplitter, Log, LogPipe, occupy_standard_streams


class Stream:
    """Takes at most three bytes at a time, as a pipe may."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: memoryview, /) -> int:
        self.data += bytes(data[:3])
        return min(len(data), 3)


class Broken:
    """Nobody reads."""

    def write(self, data: memoryview, /) -> int:
        raise BrokenPipeError


def output(stream: Stream | Broken) -> Log:
    return Log(stream, Redactor(["sk-known-secret"]), clock=lambda: 0.0)


def test_everything_is_written_even_in_pieces() -> None:
    stream = Stream()
    output(stream).forward("first line\nsecond with sk-known-secret\n")
    assert stream.data == b"first line\nsecond with [redacted]\n"


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    assert output(Broken()).forward("a\nb\n") == ["a", "b"]


def test_a_stuck_reader_stops_nothing_and_learns_later_what_it_missed() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as reader, open(write_end, "wb", buffering=0):
        log = Log(LogPipe(write_end, patience_seconds=0.2), Redactor())
        began = time.monotonic()
        for _ in range(50):
            log.forward("x" * 10_000 + "\n")  # a pipe holds 64 KiB
        assert time.monotonic() - began < 5
        os.set_blocking(read_end, False)
        while reader.read(1 << 16):
            pass
        log.forward("after\n")
        after = reader.read(1 << 16).decode().splitlines()
    assert re.fullmatch(r"vlm-runtime: 4\d lines are missing here, because nobody read the log", after[-2])
    assert after[-1] == "after"


def _open_a_pipe_without_standard_streams() -> None:
    for descriptor in range(3):
        os.close(descriptor)
    occupy_standard_streams()
    sys.exit(0 if min(os.pipe()) > 2 and os.readlink("/proc/self/fd/1") == "/dev/null" else 1)


def test_nothing_else_gets_the_numbers_of_closed_standard_streams() -> None:
    process = CONTEXT.Process(target=_open_a_pipe_without_standard_streams)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_the_runtimes_own_requests_are_not_logged() -> None:
    stream = Stream()
    own = '[2026-11-29 20:10:48] INFO:     127.0.0.1:50288 - "GET /ready HTTP/1.1" 503 Service Unavailable'
    others = [
        '[2026-11-29 20:10:48] INFO:     10.0.0.7:50288 - "GET /ready HTTP/1.1" 503 Service Unavailable',
        '[2026-11-29 20:10:48] INFO:     127.0.0.1:50288 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        '[2026-11-29 20:10:48] INFO:     127.0.0.1:50288 - "GET /health HTTP/1.1" 500 Internal Server Error',
    ]
    assert output(stream).forward("\n".join([own, *others]) + "\n") == others


def test_its_own_requests_from_another_address_are_not_logged() -> None:
    asks = '[2026-11-29 20:10:48] INFO:     {}:50288 - "GET /ready HTTP/1.1" 503 Service Unavailable'
    others = {"10.0.0.7": ("10.0.0.8", "10.0.0.70", "110.0.0.7"), "fd00::7": ("fd00::8",)}
    for address, other in ((address, other) for address, some in others.items() for other in some):
        out = output(Stream())
        out.set_engine_address(address)
        lines = [asks.format(each) for each in ("127.0.0.1", "::1", address, other)]
        assert out.forward("\n".join(lines) + "\n") == [asks.format(other)]


def test_the_tail_can_be_limited_to_the_newest_lines() -> None:
    now = [1000.0]
    out = Log(Stream(), Redactor(), elapsed=lambda: now[0])
    out.forward("a request was wrong\n")
    now[0] += 600
    out.forward("a scheduler died\n")
    now[0] += 5
    assert out.tail(60) == ["a scheduler died"]
    assert out.tail() == ["a request was wrong", "a scheduler died"]


def test_setting_the_clock_does_not_shorten_the_tail() -> None:
    hours = iter(range(0, 10 * 3600, 3600))
    out = Log(Stream(), Redactor(), clock=lambda: next(hours), elapsed=lambda: 0.0)
    out.forward("a scheduler died\n")
    out.write("the clock was wrong")
    out.forward("the engine ends\n")
    assert out.tail(60) == ["a scheduler died", "the engine ends"]


def test_the_tail_can_be_read_while_lines_arrive() -> None:
    def clock() -> float:
        return 0.0

    out = Log(Stream(), Redactor(), elapsed=clock)
    out.forward("one\ntwo\n")

    class Since(float):
        """Compared with each line's time: another line comes in between."""

        def __le__(self, other: object) -> bool:
            out.forward("three\n")
            return True

        def __rsub__(self, other: object) -> Since:
            return self

    assert out.tail(Since(1)) == ["one", "two"]


def test_the_runtimes_own_lines_are_marked_and_without_secrets() -> None:
    stream = Stream()
    output(stream).write("answered with sk-known-secret")
    assert stream.data.endswith(b"vlm-runtime: answered with [redacted]\n")


@settings(max_examples=30)
@given(st.lists(st.text(alphabet="ab ü\t", max_size=20), max_size=20), st.data())
def test_lines_come_out_whole_however_the_pipe_cuts_them(lines: list[str], data: st.DataObject) -> None:
    sent = "".join(f"{line}\n" for line in lines).encode()
    splitter, received = LineSplitter(), ""
    while sent:
        size = data.draw(st.integers(1, 7))
        block = splitter.feed(sent[:size])
        assert block == "" or block.endswith("\n")
        received, sent = received + block, sent[size:]
    assert received + splitter.end() == "".join(f"{line}\n" for line in lines)


def test_a_progress_bar_is_shown_while_it_moves() -> None:
    assert LineSplitter().feed(b"loading  0%\rloading 50%\rload") == "loading  0%\nloading 50%\n"


def test_a_last_line_without_an_end_is_kept() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"Segmentation fault") == ""
    assert splitter.end() == "Segmentation fault"


def test_a_line_without_end_is_dropped_and_the_next_one_kept() -> None:
    splitter = LineSplitter()
    first = splitter.feed(b"before\n" + b"x" * (LONGEST_LINE_BYTES + 1))
    assert first.splitlines() == ["before", "[vlm-runtime: a line of more than 1 MiB was dropped here]"]
    assert splitter.feed(b"still the same line\nafter\n") == "after\n"
