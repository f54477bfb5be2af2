"""Phases of the start, from lines as SGLang 0.5.23 and older releases write them."""

from __future__ import annotations

import pytest

from vlm_api.report import Phase
from vlm_runtime.sglang.log_lines import phase_of


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("[2026-11-29 19:53:03 TP0] Load weight begin. avail mem=20.97 GB", Phase.LOADING_WEIGHTS),
        ("[2026-11-29 19:53:03] Capture decode CUDA graph begin. This can take a while", Phase.CAPTURING_GRAPHS),
        ("[2026-06-01 10:00:00 TP0] Capture cuda graph begin. This can take several minutes", Phase.CAPTURING_GRAPHS),
        ("[2026-11-29 19:53:03] Capture draft extend cuda graph begin.", Phase.CAPTURING_GRAPHS),
        ("[2026-11-29 19:53:04] INFO:     Uvicorn running on http://0.0.0.0:8000", Phase.WARMING_UP),
        ("[2026-11-29 19:53:03] Load weight end. elapsed=0.10 s", None),
        ("[2026-11-29 19:53:04] Disable prefill CUDA graph because prefill.backend='disabled'", None),
        ('[2026-11-29 19:53:04] INFO:     10.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK', None),
    ],
)
def test_a_log_line_begins_a_phase_or_none(line: str, phase: Phase | None) -> None:
    assert phase_of(line) is phase
