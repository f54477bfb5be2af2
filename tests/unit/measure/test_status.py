"""``kubectl vlm status`` shows what was measured last."""

from __future__ import annotations

from typing import Any

import pytest
from unit.cli.test_health import condition, printed

MEASURED = {
    "time": "2025-11-29T11:00:00Z", "planHash": "ab12", "concurrency": 400, "rounds": 6, "requests": 12_000,
    "failures": 0, "requestsPerSecond": 68.551, "outputTokensPerSecond": 8774.5, "ttftP50Milliseconds": 1234.5,
}  # fmt: skip


def shown(**changes: Any) -> str:
    status = {
        "conditions": [condition("Ready", "True", "Serving", "it serves")],
        "plan": {"hash": "ab12"},
        "benchmark": MEASURED | changes,
    }
    [line] = [each for each in printed(status).splitlines() if "Measured" in each]
    return line.split("Measured")[1].strip()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "68.55 requests/s at 400 at once, first token after 1,234 ms, 60m ago"),
        (
            {"planHash": "cd34"},
            "68.55 requests/s at 400 at once, first token after 1,234 ms, 60m ago, with the plan cd34",
        ),
        (
            {"failures": 3, "ttftP50Milliseconds": None},
            "68.55 requests/s at 400 at once, 3 of 12000 requests failed, 60m ago",
        ),
    ],
)
def test_a_measurement_is_shown_with_its_age_and_its_plan(changes: dict[str, Any], said: str) -> None:
    assert shown(**changes) == said
