"""``kubectl vlm explain``: planned values beside those in force."""

from typing import Any

import pytest
from unit.cli.builders import service

from vlm_operator.cli import service as live
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
    "engine": {"version": "1.2.3", "image": "lmsysorg/sglang:v1.2.3"},
    "settings": SETTINGS,
    "memory": {"featurePoolMiB": 3072},
}
FINDING = {
    "severity": "Warning",
    "reason": "ImagesRepeat",
    "about": "Resources",
    "message": "set it to Repeated",
    "path": "spec.workload",
}


class Cluster:
    """One service with a status."""

    def __init__(self, effective: dict[str, Any] | None) -> None:
        self.raw = service() | {"status": {"plan": PLAN} | ({"effective": effective} if effective else {})}

    def service(self, name: str) -> dict[str, Any]:
        return self.raw


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The output for a given ``status.effective``."""

    def run(effective: dict[str, Any] | None) -> str:
        monkeypatch.setattr(live, "connect", lambda _: Cluster(effective))
        monkeypatch.setenv("COLUMNS", "140")
        assert main(["explain", "vlm"]) == 0
        return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())

    return run


def row(text: str, first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_an_ignored_setting_shows_both_values(explained: Any) -> None:
    different = {"name": "prefill_decode_interval", "planned": 22, "effective": 0}
    text = explained({"pod": "vlm-0", "agrees": False, "settings": [different]})
    assert row(text, "prefill_decode_interval")[:3] == ["prefill_decode_interval", "22", "0"]
    assert text.splitlines()[-2:] == [
        "The engine in pod vlm-0 uses different values than planned:",
        "  prefill_decode_interval: planned 22, in force 0",
    ]


def test_the_actual_size_of_the_feature_pool_is_shown_beside_the_planned_one(explained: Any) -> None:
    different = {"name": "SGLANG_MM_FEATURE_CACHE_MB", "planned": 3072, "effective": 1024}
    text = explained({"pod": "vlm-0", "agrees": False, "settings": [different], "featurePoolMiB": 1024})
    pool = text[text.index("Feature pool") :]
    assert row(pool, "planned") == ["planned", "3,072", "MiB"]
    assert row(pool, "in") == ["in", "force", "1,024", "MiB"]
    unknown = explained({"pod": "vlm-0", "agrees": True})
    assert row(unknown[unknown.index("Feature pool") :], "in") == ["in", "force", "unknown"]


def test_unreported_settings_and_unexpected_defaults_are_listed(explained: Any) -> None:
    chosen = {"name": "attention_backend", "expected": "fa3", "effective": "flashinfer"}
    text = explained(
        {"pod": "vlm-0", "agrees": True, "notReported": ["TORCHDYNAMO_DISABLE"], "engineDefaults": [chosen]}
    )
    assert row(text, "TORCHDYNAMO_DISABLE")[1:4] == ["1", "not", "reported"]
    assert row(text, "attention_backend")[1:4] == ["flashinfer", "(expected", "fa3)"]
    assert text.splitlines()[-3:] == [
        "Engine default in pod vlm-0: attention_backend: expected fa3, the engine chose flashinfer",
        "Not reported by the engine: TORCHDYNAMO_DISABLE",
        "Every reported value matches the plan (pod vlm-0).",
    ]


def test_the_traffic_is_compared_with_the_declared_reuse(explained: Any) -> None:
    images = {"declared": "SingleUse", "repeatedPercent": 40, "finding": FINDING}
    text = explained({"pod": "vlm-0", "agrees": True, "images": images})
    assert row(text, "declared") == ["declared", "SingleUse"]
    assert row(text, "repeated") == ["repeated", "about", "40%"]
    assert "Warning ImagesRepeat  (spec.workload)\n    set it to Repeated" in text
    assert "repeated" not in explained({"pod": "vlm-0", "agrees": True})


def test_without_a_report_only_planned_values_are_shown(explained: Any) -> None:
    text = explained(None)
    assert text.splitlines()[-1] == "No engine has reported yet: these are the planned values."
    assert "IN FORCE" not in text
