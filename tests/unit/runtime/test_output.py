"""The container's log: whole lines, in order, without secrets and without the runtime's own questions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from vlm_runtime.log_pipe import LogPipe
from vlm_runtime.output import LONGEST_LINE_BYTES, LineSplitter, Output
from vlm_runtime.redact import Redactor


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


def output(stream: Stream | Broken) -> Output:
    return Output(stream, Redactor(["sk-known-secret"]), clock=lambda: 0.0)


def test_everything_is_written_also_where_the_pipe_takes_it_in_pieces() -> None:
    stream = Stream()
    output(stream).engine("first line\nsecond with sk-known-secret\n")
    assert stream.data == b"first line\nsecond with [redacted]\n"


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    assert output(Broken()).engine("a\nb\n") == ["a", "b"]


def test_a_reader_that_is_stuck_stops_nothing_and_learns_later_what_it_missed() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as reader, open(write_end, "wb", buffering=0):
        log = Output(LogPipe(write_end, patience_seconds=0.2), Redactor())
        began = time.monotonic()
        for _ in range(50):
            log.engine("x" * 10_000 + "\n")  # a pipe holds 64 KiB
        assert time.monotonic() - began < 5
        os.set_blocking(read_end, False)
        while reader.read(1 << 16):
            pass
        log.engine("after\n")
        after = reader.read(1 << 16).decode().splitlines()
    assert re.fullmatch(r"vlm-runtime: 4\d lines are missing here, since nobody took them", after[-2])
    assert after[-1] == "after"


def test_closed_standard_streams_are_taken_by_nothing_else() -> None:
    program = (
        "from vlm_runtime.log_pipe import occupy_standard_streams; import os; occupy_standard_streams(); r, w = os.pipe(); "
        "raise SystemExit(0 if min(r, w) > 2 and os.readlink('/proc/self/fd/1') == '/dev/null' else 1)"
    )
    closed = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program], check=False)
    assert closed.returncode == 0


def test_the_runtimes_own_questions_are_left_out_and_those_of_others_stay() -> None:
    stream = Stream()
    own = '[2026-11-29 20:10:48] INFO:     127.0.0.1:50288 - "GET /ready HTTP/1.1" 503 Service Unavailable'
    others = [
        '[2026-11-29 20:10:48] INFO:     10.0.0.7:50288 - "GET /ready HTTP/1.1" 503 Service Unavailable',
        '[2026-11-29 20:10:48] INFO:     127.0.0.1:50288 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        '[2026-11-29 20:10:48] INFO:     127.0.0.1:50288 - "GET /health HTTP/1.1" 500 Internal Server Error',
    ]
    assert output(stream).engine("\n".join([own, *others]) + "\n") == others


def test_its_questions_to_an_engine_that_listens_on_the_pods_address_alone_are_left_out_as_well() -> None:
    asks = '[2026-11-29 20:10:48] INFO:     {}:50288 - "GET /ready HTTP/1.1" 503 Service Unavailable'
    others = {"10.0.0.7": ("10.0.0.8", "10.0.0.70", "110.0.0.7"), "fd00::7": ("fd00::8",)}
    for address, other in ((address, other) for address, some in others.items() for other in some):
        out = output(Stream())
        out.asks_at(address)
        lines = [asks.format(each) for each in ("127.0.0.1", "::1", address, other)]
        assert out.engine("\n".join(lines) + "\n") == [asks.format(other)]


def test_of_the_engines_last_lines_only_the_newest_can_be_asked_for() -> None:
    now = [1000.0]
    out = Output(Stream(), Redactor(), elapsed=lambda: now[0])
    out.engine("a request was wrong\n")
    now[0] += 600
    out.engine("a scheduler died\n")
    now[0] += 5
    assert out.tail(60) == ["a scheduler died"]
    assert out.tail() == ["a request was wrong", "a scheduler died"]


def test_a_clock_that_is_set_takes_no_last_line_away() -> None:
    hours = iter(range(0, 10 * 3600, 3600))
    out = Output(Stream(), Redactor(), clock=lambda: next(hours), elapsed=lambda: 0.0)
    out.engine("a scheduler died\n")
    out.say("the clock was wrong")
    out.engine("the engine ends\n")
    assert out.tail(60) == ["a scheduler died", "the engine ends"]


def test_the_last_lines_can_be_asked_for_while_others_come() -> None:
    def clock() -> float:
        return 0.0

    out = Output(Stream(), Redactor(), elapsed=clock)
    out.engine("one\ntwo\n")

    class Since(float):
        """Compared with each line's time: another line comes in between."""

        def __le__(self, other: object) -> bool:
            out.engine("three\n")
            return True

        def __rsub__(self, other: object) -> Since:
            return self

    assert out.tail(Since(1)) == ["one", "two"]


def test_the_runtimes_own_lines_are_marked_and_without_secrets() -> None:
    stream = Stream()
    output(stream).say("answered with sk-known-secret")
    assert stream.data.endswith(b"vlm-runtime: answered with [redacted]\n")


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


def test_a_line_without_end_is_left_out_with_a_word_and_what_follows_is_not_lost() -> None:
    splitter = LineSplitter()
    first = splitter.feed(b"before\n" + b"x" * (LONGEST_LINE_BYTES + 1))
    assert first.splitlines() == ["before", "[vlm-runtime: a line of more than 1 MiB is left out here]"]
    assert splitter.feed(b"still the same line\nafter\n") == "after\n"
