"""Traces: every kernel has its kind, the shares come out as they were put in, and GEMMs meet the roofline."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.bench import trace_events as events
from unit.bench.trace_events import Recording

from vlm_bench.traces import trace as trace_module
from vlm_bench.traces.kernels import Work, kernel_work, operator_work, short
from vlm_bench.traces.stages import DECODE, PREFILL, UNMARKED, Stage, read_stages, stages_of
from vlm_bench.traces.trace import TraceError, merged, read_events, trace_of

H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("name", "work"),
    [
        (events.NVJET, Work.GEMM),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off",
            Work.GEMM,
        ),
        (
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(Params)",
            Work.GEMM,
        ),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(Params)", Work.GEMM),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<4096u, 7168u>(Params)", Work.GEMM),
        ("fused_moe_kernel", Work.GEMM),
        (events.FLASH_3, Work.ATTENTION),
        (events.FLASHINFER_DECODE, Work.ATTENTION),
        ("void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(...)", Work.ATTENTION),
        ("_fwd_grouped_kernel_stage1", Work.ATTENTION),
        (events.FLASHINFER_NORM, Work.NORMALISATION),
        (events.LAYER_NORM, Work.NORMALISATION),
        (events.ACT_AND_MUL, Work.OTHER),
        (events.ROTARY, Work.OTHER),
        (events.NCCL, Work.COMMUNICATION),
        (events.CUSTOM_REDUCE, Work.COMMUNICATION),
        (events.COPY, Work.COPY),
        (events.CAT, Work.COPY),
        ("vision_patch_embed_kernel", Work.VISION),
        # The vision encoder's attention by cuDNN, whose name has a GEMM's "wgmma".
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
            Work.ATTENTION,
        ),
        ("void cudnn::fusion::compute_fprop_attn", Work.ATTENTION),
        # SGLang's Triton attention, and what is called alike in its mixture of experts.
        ("_fwd_kernel", Work.ATTENTION),
        ("_fwd_kernel_stage1", Work.ATTENTION),
        ("_fwd_kernel_stage2", Work.ATTENTION),
        ("_fwd_kernel_unified", Work.ATTENTION),
        ("_fwd_kernel_dense_prefill", Work.ATTENTION),
        ("_fwd_kv_parallel", Work.ATTENTION),
        ("_fwd_kernel_ep_gather", Work.COPY),
        ("_fwd_kernel_ep_scatter_1", Work.COPY),
        ("void flashinfer::PrefillWithKVCacheKernel<KernelTraits, true>(Params)", Work.ATTENTION),
        ("void flashinfer::FP8PrefillWithKVCacheKernel<KernelTraits, true>(Params)", Work.ATTENTION),
        ("void flashinfer::BatchPODWithKVCacheTensorKernel<KTraits>(Params)", Work.ATTENTION),
        ("fmhaSm100aKernel_QkvBfloat16OBfloat16H128PagedKvCausal", Work.ATTENTION),
        ("void flashinfer::AppendPagedKVCacheDecodeKernel<128u>(Params)", Work.COPY),
        ("void (anonymous namespace)::fused_qknorm_warp<128, true>(QKNormParams)", Work.NORMALISATION),
        ("void tensorrt_llm::kernels::fusedQKNormRopeKernel<128, true>(void*)", Work.NORMALISATION),
        ("_fused_norm_rope_kernel", Work.NORMALISATION),
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128_s6_et128x8_m128x8x16_sm100f", Work.GEMM),
        ("void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256>(int4 const*)", Work.GEMM),
        ("_ZN5cask_14cudnn_gemm_sm90", Work.GEMM),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", Work.GEMM),
        ("void mul_mat_vec_q<__nv_bfloat16, 256>(void const*)", Work.GEMM),
        ("_fp8_scaled_mm_kernel", Work.GEMM),
        ("void cudnn::ops::convertTensor_kernel<float>(float)", Work.OTHER),
        ("_prefill_schedule_prep_kernel", Work.OTHER),
        ("void flashinfer::sampling::TopKRenormProbKernel<1024u, float, int>(float*)", Work.OTHER),
        ("fast_topk_kernel", Work.OTHER),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<LinCombTopKSoftmaxCol>>(Params)", Work.GEMM),
        ("set_mla_kv_buffer_kernel", Work.COPY),
        ("_ZN7cutlass13device_kernelIN5flash19enable_sm90_or_laterEE", Work.ATTENTION),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", Work.COPY),
        ("inkling_multimem_full_oneshot_kernel", Work.COMMUNICATION),
        ("void mscclpp::allreduceAllPair<__half>(void*)", Work.COMMUNICATION),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)",
            Work.OTHER,
        ),
    ],
)
def test_kernels_of_hopper_have_their_kind(name: str, work: Work) -> None:
    assert kernel_work(name) is work


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("aten::mm", Work.GEMM), ("aten::addmm", Work.GEMM), ("aten::linear", Work.GEMM), ("aten::convolution", Work.GEMM),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", Work.ATTENTION), ("aten::native_layer_norm", Work.NORMALISATION),
        ("aten::copy_", Work.COPY), ("aten::index_put_", Work.COPY), ("c10d::allreduce_", Work.COMMUNICATION),
        ("aten::silu", Work.OTHER), ("aten::mul", Work.OTHER), ("aten::mean", Work.OTHER),
    ],
)  # fmt: skip
def test_operators_of_the_cpu_have_their_kind(name: str, work: Work) -> None:
    assert operator_work(name) is work


def decode() -> Recording:
    """A decode step at a batch of 8: 72 % GEMM, 20 % attention, 5 % norms, 3 % copies; then as much time idle."""
    made = Recording()
    made.step("step[DECODE bs=8")
    for _ in range(10):
        made.kernel(events.NVJET, 72, graph=True)
        made.kernel(events.FLASHINFER_DECODE, 20, graph=True)
        made.kernel(events.FLASHINFER_NORM, 5, graph=True)
        made.kernel(events.COPY, 3, graph=True)
        made.wait(100)
    made.kernel(events.NVJET, 0.001, graph=True)
    return made


def test_the_gemm_share_comes_out_as_it_was_put_in() -> None:
    stage = Stage("decode", stages_of(decode().events, H100)[DECODE])
    assert stage.gemm_share() == pytest.approx(0.72, abs=1e-3)
    assert stage.by_work()[Work.ATTENTION] / stage.trace.work_us == pytest.approx(0.20, abs=1e-3)
    assert stage.trace.idle_us == pytest.approx(1000)
    assert stage.trace.span_us == pytest.approx(2000, abs=0.1)
    assert stage.sentence().startswith(
        "72% of the kernels' time is GEMMs; idle for 50% of 2.0 ms; GEMMs limited by memory bandwidth take 72%"
    )


def test_a_gemm_at_a_batch_of_8_is_limited_by_bandwidth_though_a_graph_hides_its_shape() -> None:
    stage = Stage("decode", stages_of(decode().events, H100)[DECODE])
    [gemm] = stage.gemms
    assert (gemm.m, gemm.n, gemm.shape) == (8, None, "M=8 (batch size)")
    assert gemm.flops_per_byte == 8
    assert gemm.is_limited_by_bandwidth(stage.ridge)
    assert stage.bandwidth_us() == pytest.approx(720, abs=0.1)


def test_what_the_vision_encoder_launches_is_its_own_kind_and_counts_as_gemm_besides() -> None:
    made = Recording()
    made.frame("sglang.vlm.mm_embedding", "user_annotation", (events.NVJET, 30), (events.FLASH_3, 10))
    made.frame("nn.Module: Qwen3VLMoeVisionModel_0", "python_function", (events.LAYER_NORM, 10))
    made.frame("nn.Module: Qwen3LLMModel_0", "python_function", (events.NVJET, 40), (events.FLASH_3, 10))
    stage = Stage("prefill", trace_of(made.events, H100))
    assert stage.by_work() == {Work.GEMM: 40, Work.ATTENTION: 10, Work.VISION: 50}
    assert stage.gemm_share() == pytest.approx(0.70)
    assert [gemm.vision for gemm in stage.gemms] == [False, True]


def test_kernels_that_run_at_once_are_work_twice_and_busy_once() -> None:
    made = Recording()
    made.kernel(events.NVJET, 100)
    made.events.append({**made.events[-1], "name": events.NCCL, "tid": 8, "args": {"correlation": 99, "stream": 8}})
    trace = trace_of(made.events, H100)
    assert (trace.work_us, trace.busy_us, trace.idle_us) == (200, 100, 0)


def test_shapes_come_from_the_operator_and_give_what_was_reached() -> None:
    made = Recording()
    made.kernel(events.NVJET, 100, shapes=[[4096, 4096], [4096, 12288]])
    made.kernel(events.NVJET, 10, shapes=[[8, 4096], [4096, 12288]])
    stage = Stage("prefill", trace_of(made.events, H100))
    large, small = stage.gemms
    assert (large.shape, small.shape) == ("4096×12288×4096", "8×12288×4096")
    assert large.teraflops == pytest.approx(2 * 4096 * 12288 * 4096 / 100e-6 / 1e12)
    assert small.terabytes == pytest.approx(2 * (8 * 4096 + 4096 * 12288 + 8 * 12288) / 10e-6 / 1e12)
    assert large.is_limited_by_bandwidth(stage.ridge) is False
    assert small.is_limited_by_bandwidth(stage.ridge)


def test_without_a_devices_numbers_no_limit_is_named() -> None:
    stage = Stage("decode", trace_of(decode().events, "NVIDIA Z9000"))
    assert stage.gemms[0].is_limited_by_bandwidth(stage.ridge) is None
    assert "is unknown: NVIDIA Z9000 is not in the table of GPUs" in stage.sentence()


def test_own_times_of_nested_operators_add_up_to_the_outermost() -> None:
    def operator(name: str, start: float, us: float, category: str = "cpu_op") -> events.Event:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": us, "args": {}}

    made = [
        operator("step[DECODE bs=2", 0, 100, "user_annotation"), operator("aten::linear", 10, 40),
        operator("aten::addmm", 15, 30), operator("aten::copy_", 20, 5), operator("aten::silu", 60, 20),
    ]  # fmt: skip
    stage = Stage("decode", stages_of(made)[DECODE])
    assert stage.by_work() == {Work.GEMM: 35, Work.COPY: 5, Work.OTHER: 20, Work.HOST: 40}
    assert (stage.trace.work_us, stage.trace.device, stage.trace.steps) == (100, "CPU", (("DECODE", 2),))


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3)), max_size=30))
def test_merged_intervals_lie_apart_and_cover_the_same(given_intervals: list[tuple[float, float]]) -> None:
    intervals = [(start, start + length) for start, length in given_intervals]
    found = merged(intervals)
    assert all(a[1] < b[0] for a, b in pairwise(found))
    assert all(any(start <= s and e <= end for start, end in found) for s, e in intervals)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a trace",
        b"{}",
        b'{"traceEvents": []}',
        b'{"traceEvents": [], "deviceProperties": [null]}',
        gzip.compress(b"[1]", mtime=0),
        b"\x1f\x8bx",
        gzip.compress(b"", mtime=0)[:10] + b"\xff" * 40,
    ],
)
def test_what_is_no_trace_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(TraceError, match="trace"):
        read_stages(data)


def test_a_gzipped_trace_names_its_device() -> None:
    document = {"deviceProperties": [{"name": H100}], "traceEvents": decode().events}
    assert {trace.device for trace in read_stages(gzip.compress(json.dumps(document).encode())).values()} == {H100}


def large(count: int) -> bytes:
    """A trace as PyTorch writes it on an H100: kernels with all their arguments, and as many frames of Python."""
    arguments = {
        "External id": 0, "queued": 0, "device": 0, "context": 1, "stream": 7, "registers per thread": 168,
        "shared memory": 213000, "blocks per SM": 1.2, "warps per SM": 8.0, "grid": [128, 1, 1], "block": [384, 1, 1],
        "est. achieved occupancy %": 12,
    }  # fmt: skip
    made: list[events.Event] = []
    for n in range(count):
        at = {"ph": "X", "pid": 0, "tid": 7, "ts": 1e6 + 3 * n, "dur": 2.5}
        made.append({**at, "cat": "kernel", "name": events.NVJET, "args": {**arguments, "correlation": n}})
        made.append({**at, "cat": "python_function", "name": f"schedule.py({n}): run", "args": {"Python id": n}})
        made.append({**at, "ph": "f", "cat": "ac2g", "name": "ac2g", "id": n})
    return gzip.compress(json.dumps({"deviceProperties": [{"name": H100}], "traceEvents": made}).encode(), 1)


def test_of_a_large_trace_only_what_is_looked_at_stays_in_memory() -> None:
    data = large(4000)
    tracemalloc.start()
    try:
        found, device = read_events(data)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(found), device) == (4000, H100)
    assert kept < 4000 * 1000
    assert most < 4000 * 5000
    assert trace_of(found, device).busy_us == 4000 * 2.5


@pytest.mark.parametrize("packed", [True, False])
def test_a_trace_that_is_too_large_is_refused_with_what_to_do(packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = large(2000) if packed else gzip.decompress(large(2000))
    monkeypatch.setattr(trace_module, "MOST_BYTES", 2**20)
    with pytest.raises(TraceError, match=r"^it is larger than 1 MiB unpacked.*: record fewer steps \(--steps\)"):
        read_events(data)


def test_names_are_cut_to_what_tells_kernels_apart() -> None:
    assert short(events.FLASHINFER_NORM) == "flashinfer::norm::FusedAddRMSNormKernel"
    assert short(events.FLASH_3) == "flash::FlashAttnFwdSm90"
    assert short(events.CAT) == "at::native::CatArrayBatchedCopy_vectorized"
    tensorop = "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8"
    assert short(f"void cutlass::Kernel2<{tensorop}>(Params)", length=80) == tensorop
    assert short(events.NVJET) == events.NVJET


def test_steps_of_both_stages_in_one_trace_are_told_apart() -> None:
    made = Recording()
    made.kernel(events.NVJET, 1000)  # of a step that had begun before
    for batch in (8, 9):
        made.step(f"step[DECODE bs={batch}]")
        made.kernel(events.NVJET, 70, graph=True)
        made.wait(30)
    made.step("step[EXTEND bs=2 toks=900]")
    made.kernel(events.FLASH_3, 400)
    made.step("step[IDLE bs=0]")
    made.step("step[DECODE bs=10]")
    made.kernel(events.FLASHINFER_DECODE, 20, graph=True)
    found = stages_of(made.events, H100)
    assert list(found) == [PREFILL, DECODE]
    prefill, decode_ = Stage(PREFILL, found[PREFILL]), Stage(DECODE, found[DECODE])
    assert prefill.by_work() == {Work.ATTENTION: 400}
    assert decode_.by_work() == {Work.GEMM: 140, Work.ATTENTION: 20}
    assert decode_.trace.steps == (("DECODE", 8), ("DECODE", 9), ("DECODE", 10))
    # The 30 µs between two decode steps are idle; the prefill between two others is not, and had to be waited for.
    assert (decode_.trace.span_us, decode_.trace.idle_us) == (190, 30)
    assert (prefill.trace.span_us, prefill.trace.idle_us) == (430, 30)


def test_what_is_idle_at_changes_of_stage_is_no_stages_secret() -> None:
    made = Recording()
    for _ in range(4):
        for mark in ("step[EXTEND bs=8 toks=8]", "step[DECODE bs=8]"):
            made.step(mark)
            made.kernel(events.NVJET, 10)
            made.wait(10)
    found = stages_of(made.events, H100)
    assert (found[PREFILL].span_us, found[PREFILL].idle_us) == (70, 30)
    assert (found[DECODE].span_us, found[DECODE].idle_us) == (80, 40)
    whole = trace_of(made.events, H100)
    assert sum(trace.span_us for trace in found.values()) == whole.span_us
    assert sum(trace.idle_us for trace in found.values()) == whole.idle_us


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=20))
def test_the_times_of_stages_add_up_to_what_passed_however_their_kernels_overlap(
    kernels: list[tuple[bool, int, int]],
) -> None:
    made = Recording()
    for prefill, wait, us in kernels:
        made.step("step[EXTEND bs=8 toks=8]" if prefill else "step[DECODE bs=8]")
        made.kernel(events.NVJET, us)
        made.events[-1]["ts"] += wait
    found, whole = stages_of(made.events, H100), trace_of(made.events, H100)
    assert sum(trace.span_us for trace in found.values()) == pytest.approx(whole.span_us)
    assert sum(trace.busy_us for trace in found.values()) == pytest.approx(whole.busy_us)


def test_kernels_belong_to_the_step_that_launched_them_however_late_they_run() -> None:
    made = Recording()
    made.step("step[EXTEND bs=1 toks=9]")
    made.kernel(events.NVJET, 50)
    late = made.events[-1]
    made.step("step[DECODE bs=1]")
    made.kernel(events.FLASHINFER_DECODE, 5)
    late["ts"] += 52  # the processor is ahead of the device
    found = stages_of(made.events, H100)
    assert [p.name for p in found[PREFILL].pieces] == [events.NVJET]
    assert [p.name for p in found[DECODE].pieces] == [events.FLASHINFER_DECODE]


def test_passes_of_a_draft_model_belong_to_the_step_they_are_made_for() -> None:
    made = Recording()
    for name in ("VERIFY", "DRAFT", "VERIFY"):
        made.step(f"step[{name} bs=4]")
        made.kernel(events.NVJET, 10)
    found = stages_of(made.events, H100)
    assert (list(found), found[DECODE].work_us, len(found[DECODE].steps)) == ([DECODE], 30, 2)


def test_a_trace_without_marks_is_one_stage() -> None:
    made = Recording()
    made.kernel(events.NVJET, 10)
    assert list(stages_of(made.events, H100)) == [UNMARKED]
