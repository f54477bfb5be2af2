"""The CPU plugin does nothing unless the plan is for the CPU."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from vlm_runtime.sglang.inside.cpu import activate


@pytest.mark.parametrize("device", [None, "", "cuda"])
def test_on_a_gpu_the_plugin_does_nothing(monkeypatch: pytest.MonkeyPatch, device: str | None) -> None:
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


def test_on_the_cpu_it_names_its_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, "sglang", "sglang.srt", "sglang.srt.platforms", "sglang.srt.platforms.cpu")
    assert activate() == "vlm_runtime.sglang.inside.cpu_platform.CpuPlatform"


def test_a_release_without_the_cpu_platform_names_one_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, "sglang", "sglang.srt", "sglang.srt.platforms")
    with pytest.raises(RuntimeError, match=r"0\.5\.14 or later"):
        activate()
