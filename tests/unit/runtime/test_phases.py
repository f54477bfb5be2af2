"""Phases, from lines as SGLang 0.5.23 and older versions write them."""

from __future__ import annotations

import pytest

from vlm_api.report import Phase
from vlm_runtime.phases import later, phase_of


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("[2026-11-29 19:53:03 TP0] Load weight begin. avail mem=20.97 GB", Phase.LOADING_WEIGHTS),
        ("[2026-11-29 19:53:03] Capture decode CUDA graph begin. This can take a while", Phase.CAPTURING_GRAPHS),
        (
            "[2026-06-01 10:00:00 TP0] Capture cuda graph begin. This can take up to several minutes",
            Phase.CAPTURING_GRAPHS,
        ),
        ("[2026-11-29 19:53:03] Capture draft extend cuda graph begin.", Phase.CAPTURING_GRAPHS),
        ("[2026-11-29 19:53:04] INFO:     Uvicorn running on http://0.0.0.0:8000", Phase.WARMING_UP),
    ],
)
def test_a_line_of_the_log_begins_a_phase(line: str, phase: Phase) -> None:
    assert phase_of(line) is phase


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-29 19:53:03] Load weight end. elapsed=0.10 s",
        "[2026-11-29 19:53:04] Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled'",
        '[2026-11-29 19:53:04] INFO:     10.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    ],
)
def test_other_lines_begin_none(line: str) -> None:
    assert phase_of(line) is None


def test_phases_only_go_forward_whatever_order_the_ranks_write_in() -> None:
    assert later(Phase.CAPTURING_GRAPHS, Phase.LOADING_WEIGHTS) is Phase.CAPTURING_GRAPHS
    assert later(Phase.STARTING, Phase.LOADING_WEIGHTS) is Phase.LOADING_WEIGHTS


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.STOPPED, Phase.FAILED])
def test_the_end_is_not_left_any_more(phase: Phase) -> None:
    assert later(phase, Phase.READY) is phase
