"""Nsight Systems: a stand-in for ``nsys`` that says what the real one does (its user guide), since that needs a GPU."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from unit.bench.trace_events import FLASH_3, FLASHINFER_NORM, NVJET
from unit.manifests import samples

from vlm_api.status import VLMService
from vlm_bench.commands.recording import Recorded, received
from vlm_bench.programs import recorder
from vlm_bench.traces.kernels import Work
from vlm_bench.twins.nsight import LAUNCH, kernel_sums, under_nsight
from vlm_bench.twins.twin import twin_manifest
from vlm_operator.errors import ClusterError, InvalidInput
from vlm_operator.sglang.catalogue.releases import newest, release
from vlm_operator.sglang.choices.user_choices import user_choices
from vlm_runtime.__main__ import options

CSV = f"""Generating SQLite file vlm.sqlite from vlm.nsys-rep
Processing [vlm.sqlite] with [cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
72.0,7200000,90,80000.0,80000.0,1,2,0.1,{NVJET}
20.0,2000000,10,200000.0,2000.0,1,2,0.1,"{FLASH_3}"
8.0,800000,10,80000.0,80000.0,1,2,0.1,"{FLASHINFER_NORM}"

"""
NSYS = """#!/bin/sh
echo "$@" >> "$NSYS_CALLS"
case "$1" in
  start) [ -z "$NSYS_REFUSES" ] || { echo "No session vlm" >&2; exit 1; }
    for word; do case "$word" in --output=*) echo "${word#--output=}" > "$NSYS_CALLS.path";; esac; done ;;
  stop) printf recording > "$(cat "$NSYS_CALLS.path")" ;;
  stats) [ -z "$NSYS_IS_OLD" ] || { echo "Report 'cuda_gpu_kern_sum' could not be found" >&2; exit 1; }
    cat "$NSYS_CSV" ;;
esac
"""
SERVICE: dict[str, Any] = {
    "apiVersion": "vlmserve.dev/v1alpha1",
    "kind": "VLMService",
    "metadata": {"name": "qwen", "namespace": "here"},
    "spec": {"model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}},
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(NSYS)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "sums.csv").write_text(CSV)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("NSYS_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("NSYS_CSV", str(tmp_path / "sums.csv"))
    return tmp_path / "calls"


def recorded(capsys: pytest.CaptureFixture[str]) -> tuple[int, Recorded]:
    code = recorder.main(json.dumps({"session": "vlm", "seconds": 0.1}))
    return code, received(iter(capsys.readouterr().out.splitlines()), lambda _: None)


def test_a_recording_comes_with_its_kernels(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = recorded(capsys)
    assert (code, found.data, found.notes) == (0, b"recording", ())
    assert [line.split()[:2] for line in calls.read_text().splitlines()] == [
        ["start", "--session=vlm"],
        ["stop", "--session=vlm"],
        ["stats", "--report=cuda_gpu_kern_sum"],
    ]
    kernels = kernel_sums(found.kernels)
    assert [(k.work, k.count, k.total_us) for k in kernels] == [
        (Work.GEMM, 90, 7200),
        (Work.ATTENTION, 10, 2000),
        (Work.NORMALISATION, 10, 800),
    ]


def test_an_nsys_without_that_report_leaves_the_recording(
    calls: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_IS_OLD", "1")
    code, found = recorded(capsys)
    assert (code, found.data, kernel_sums(found.kernels)) == (0, b"recording", [])
    assert "'cuda_gpu_kern_sum' could not be found" in found.notes[0]


def test_an_nsys_that_refuses_is_told_in_its_words(
    calls: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_REFUSES", "1")
    with pytest.raises(ClusterError, match="Nsight Systems failed: nsys start: No session vlm"):
        recorded(capsys)


def test_the_twins_engine_is_started_below_nsys_with_the_plan_behind() -> None:
    twin = under_nsight(twin_manifest(SERVICE, None, name="qwen-twin", owner={"kind": "Job"}))
    [main] = twin["spec"]["template"]["spec"]["containers"]
    assert main["name"] == "main"
    # What comes last is the rest of the line, so the plan's arguments follow SGLang's own program.
    assert main["command"][:5] == ["python3", "/opt/vlmserve/start.py", "--engine-command", "nsys", "launch"]
    assert main["command"][-3:] == ["python3", "-m", "sglang.launch_server"]


def test_the_operator_takes_the_twin_and_its_pod_runs_nsys() -> None:
    twin = VLMService.model_validate(under_nsight(twin_manifest(SERVICE, None, name="qwen-twin", owner={})))
    # Args of the container would be the engine's, which knows no such flag.
    assert user_choices(twin.spec, release(newest())).args == ()
    [main] = samples.pod(samples.plan(name="qwen-twin"), twin)["containers"]
    assert (main["command"], main.get("args")) == (list(LAUNCH), None)
    assert options(main["command"][2:]).engine_command[:2] == ["nsys", "launch"]


def test_a_row_that_is_cut_off_is_a_kernel_without_a_name() -> None:
    [kernel] = kernel_sums("Time (%),Total Time (ns),Instances,Name\n100.0,5000,2\n")
    assert (kernel.total_us, kernel.count) == (5, 2)


def test_a_template_with_a_command_of_its_own_is_refused() -> None:
    own = {
        **SERVICE,
        "spec": {**SERVICE["spec"], "template": {"spec": {"containers": [{"name": "main", "args": ["x"]}]}}},
    }
    with pytest.raises(InvalidInput, match=r"spec\.template sets a command or args of container main: remove them"):
        under_nsight(twin_manifest(own, None, name="qwen-twin", owner={}))
