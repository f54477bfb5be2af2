"""``kubectl vlm explain``: planned beside what the running engine uses."""

from __future__ import annotations

from typing import Any

import pytest
from unit.cli.builders import service

from vlm_operator.cli import live
from vlm_operator.cli.main import main

SETTINGS = [
    {
        "name": name,
        "value": value,
        "applied": value is not None,
        "source": "profile",
        "rule": "r",
        "reason": "measured",
        "expected": expected,
    }
    for name, value, expected in (
        ("prefill_decode_interval", 22, None),
        ("SGLANG_MM_FEATURE_CACHE_MB", 3072, None),
        ("TORCHDYNAMO_DISABLE", "1", None),
        ("attention_backend", None, "fa3"),
    )
]
PLAN = {
    "hash": "0123abcd",
    "engine": {"version": "0.5.23", "image": "lmsysorg/sglang:v0.5.23"},
    "settings": SETTINGS,
    "memory": {"featurePoolMiB": 3072},
}
FINDING = {"severity": "Warning", "reason": "ImagesRepeat", "message": "set it to Repeated", "path": "spec.workload"}


class Cluster:
    """One service with a status."""

    def __init__(self, effective: dict[str, Any] | None) -> None:
        self.raw = service() | {"status": {"plan": PLAN} | ({"effective": effective} if effective else {})}

    def service(self, name: str) -> dict[str, Any]:
        return self.raw


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What is printed for ``status.effective``."""

    def run(effective: dict[str, Any] | None) -> str:
        monkeypatch.setattr(live, "connect", lambda _: Cluster(effective))
        monkeypatch.setenv("COLUMNS", "140")
        assert main(["explain", "vlm"]) == 0
        return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())

    return run


def row(text: str, first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_both_values_of_an_ignored_setting_stand_side_by_side_and_again_at_the_end(explained: Any) -> None:
    different = {"name": "prefill_decode_interval", "planned": 22, "effective": 0}
    text = explained({"pod": "vlm-0", "agrees": False, "settings": [different]})
    assert row(text, "prefill_decode_interval")[:3] == ["prefill_decode_interval", "22", "0"]
    assert text.splitlines()[-2:] == [
        "The engine in pod vlm-0 uses other values than planned:",
        "  prefill_decode_interval: planned 22, in force 0",
    ]


def test_the_pools_true_size_stands_beside_the_planned_one(explained: Any) -> None:
    different = {"name": "SGLANG_MM_FEATURE_CACHE_MB", "planned": 3072, "effective": 1024}
    text = explained({"pod": "vlm-0", "agrees": False, "settings": [different], "featurePoolMiB": 1024})
    told = text[text.index("Room for image features on the GPU") :]
    assert row(told, "planned") == ["planned", "3,072", "MiB"]
    assert row(told, "in") == ["in", "force", "1,024", "MiB"]
    unknown = explained({"pod": "vlm-0", "agrees": True})
    assert row(unknown[unknown.index("Room for") :], "in") == ["in", "force", "unknown"]


def test_what_the_engine_does_not_tell_and_what_it_chose_otherwise_is_said(explained: Any) -> None:
    chosen = {"name": "attention_backend", "expected": "fa3", "effective": "flashinfer"}
    text = explained({"pod": "vlm-0", "agrees": True, "notTold": ["TORCHDYNAMO_DISABLE"], "leftAlone": [chosen]})
    assert row(text, "TORCHDYNAMO_DISABLE")[1:4] == ["1", "not", "told"]
    assert row(text, "attention_backend")[1:4] == ["flashinfer", "(expected", "fa3)"]
    assert text.splitlines()[-3:] == [
        "Left to the engine in pod vlm-0: attention_backend: expected fa3, the engine chose flashinfer",
        "Not told by the engine: TORCHDYNAMO_DISABLE",
        "The engine in pod vlm-0 uses every planned value that it tells.",
    ]


def test_the_traffic_is_held_against_what_was_declared(explained: Any) -> None:
    images = {"declared": "SingleUse", "repeatedPercent": 40, "finding": FINDING}
    text = explained({"pod": "vlm-0", "agrees": True, "images": images})
    assert row(text, "declared") == ["declared", "SingleUse"]
    assert row(text, "came") == ["came", "back", "about", "40", "%"]
    assert "Warning ImagesRepeat  (spec.workload)\n    set it to Repeated" in text
    assert "came back" not in explained({"pod": "vlm-0", "agrees": True})


def test_an_engine_that_was_not_asked_says_nothing(explained: Any) -> None:
    text = explained(None)
    assert text.splitlines()[-1] == "No running engine has been asked yet, so these are the planned values."
    assert "ENGINE SAYS" not in text
