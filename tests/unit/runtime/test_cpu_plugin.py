"""The plugin is silent unless the plan asked for the CPU."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from vlm_runtime.sglang.cpu import activate


@pytest.mark.parametrize("device", [None, "", "cuda"])
def test_on_a_gpu_the_engine_goes_on_as_without_it(monkeypatch: pytest.MonkeyPatch, device: str | None) -> None:
    monkeypatch.delenv("VLMSERVE_DEVICE", raising=False)
    if device is not None:
        monkeypatch.setenv("VLMSERVE_DEVICE", device)
    assert activate() is None


def engine(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """An engine of which only these modules are there."""
    monkeypatch.setenv("VLMSERVE_DEVICE", "cpu")
    for name in modules:
        module = ModuleType(name)
        module.__path__ = []
        module.__spec__ = sys.__spec__
        monkeypatch.setitem(sys.modules, name, module)


def test_when_asked_for_it_names_its_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, "sglang", "sglang.srt", "sglang.srt.platforms", "sglang.srt.platforms.cpu")
    assert activate() == "vlm_runtime.sglang.cpu_platform.CpuPlatform"


def test_a_version_without_the_cpu_says_which_one_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, "sglang", "sglang.srt", "sglang.srt.platforms")
    with pytest.raises(RuntimeError, match=r"0\.5\.14 or later"):
        activate()
