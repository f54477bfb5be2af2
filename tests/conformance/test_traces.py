"""A trace that PyTorch's own profiler records: what we make of it adds up to the profiler's own totals."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vlm_bench.traces.kernels import Work
from vlm_bench.traces.stages import PREFILL, Stage, read_stages
from vlm_bench.traces.trace import Trace

# In a process with the engine's PyTorch: two layers below SGLang's mark for the vision encoder, and two outside of it.
RECORD = """
import json, sys, torch
from torch.profiler import ProfilerActivity, profile, record_function

vision = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 64))
language = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.LayerNorm(256))
with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
    for _ in range(3):
        with record_function("step[EXTEND bs=8 toks=64]"):
            pixels = torch.randn(8, 64)
            with record_function("sglang.vlm.mm_embedding"):
                embedded = vision(pixels)
            hidden = language(embedded)
            heads = hidden.view(1, 4, 8, 64)
            torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            torch.cat([hidden, hidden]).clone()
recorded.export_chrome_trace(sys.argv[1])
print(json.dumps({each.key: each.self_cpu_time_total for each in recorded.key_averages()}))
"""


@pytest.fixture(scope="module")
def recorded(engine_site: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, dict[str, float]]:
    """The trace as we read it, and the profiler's own time of each operator, in microseconds."""
    path = tmp_path_factory.mktemp("trace") / "trace.json.gz"
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    env = {**os.environ, "PYTHONPATH": str(engine_site)}
    done = subprocess.run([str(python), "-c", RECORD, str(path)], env=env, capture_output=True, text=True, check=True)
    totals: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return read_stages(path.read_bytes())[PREFILL], totals


def test_kinds_of_work_add_up_to_the_profilers_own_total(recorded: tuple[Trace, dict[str, float]]) -> None:
    trace, totals = recorded
    assert sum(Stage("prefill", trace).by_work().values()) == pytest.approx(trace.work_us)
    assert trace.work_us == pytest.approx(sum(totals.values()), rel=1e-6)
    assert trace.work_us <= trace.span_us


def test_each_operator_has_the_profilers_own_time(recorded: tuple[Trace, dict[str, float]]) -> None:
    trace, totals = recorded
    own: dict[str, float] = {}
    for piece in trace.pieces:
        own[piece.name] = own.get(piece.name, 0.0) + piece.duration_us
    assert own.keys() == totals.keys()
    for name, total in totals.items():
        assert own[name] == pytest.approx(total, rel=1e-6, abs=0.01)


def test_layers_of_the_vision_encoder_are_told_from_those_of_the_language_model(
    recorded: tuple[Trace, dict[str, float]],
) -> None:
    stage = Stage("prefill", recorded[0])
    shapes = {(gemm.shape, gemm.vision): gemm.count for gemm in stage.gemms if gemm.name == "aten::addmm"}
    assert shapes == {("8×128×64", True): 3, ("8×64×128", True): 3, ("8×256×64", False): 3}
    assert {Work.GEMM, Work.VISION, Work.ATTENTION, Work.NORMALISATION, Work.COPY} <= stage.by_work().keys()
    assert stage.trace.steps == (("EXTEND", 8),) * 3
