"""Each row of the table of causes, with the lines of the public reports (in brackets) and of the sources."""

from __future__ import annotations

import time

import pytest

from vlm_api.reasons import FAILURES
from vlm_runtime.sglang.causes import CAUSES
from vlm_runtime.sglang.failure import Exit, classify
from vlm_runtime.sglang.log_lines import READ_CHARACTERS

HIT = "[2026-11-29 20:02:08 TP0] Scheduler hit an exception: Traceback (most recent call last):"
SIGQUIT = "[2026-11-29 20:02:08] Received sigquit from a child process. It usually means the child failed."
GRAPHS = [
    "Possible solutions:",
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose ",
]
NCCL = "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, "

# name: reason, whether it served, the field that the message names, and the line with the cause
ROWS = {
    "a full KV cache (sglang#4602)": (
        "OutOfDeviceMemory", True, "workload.concurrency",
        "RuntimeError: Decode out of memory. Try to lower your batch size.",
    ),
    "no slot for a request (sglang#10408)": (
        "OutOfDeviceMemory", True, "engine.settings.max_running_requests",
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. ",
    ),
    "states of a hybrid model": (
        "OutOfDeviceMemory", False, "engine.settings.mem_fraction_static",
        "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        "max_mamba_cache_size=2, mamba_ratio=3, resulting max_num_reqs=0.",
    ),
    "another process on the GPU (sglang#1533)": (
        "GpuOccupied", False, "template.spec.nodeSelector",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
    ),
    "another process on the GPU, as 0.5.23 says it (sglang#4233)": (
        "GpuOccupied", False, "engine.settings.SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK",
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=20.1, local_gpu_memory=39.0, local_gpu_memory * 0.9=35.1",
    ),
    "a V100 (MinerU#3416)": (
        "GpuUnsupported", False, "hardware.products", "RuntimeError: SGLang only supports sm75 and above.",
    ),
    "fp8 on an A100 (sglang#5871)": (
        "GpuUnsupported", False, "model.uri",
        "ValueError(\"type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')\")",
    ),
    "no code for this GPU (sglang#7249)": (
        "GpuUnsupported", False, "engine.image",
        "Exception: Capture cuda graph failed: CUDA error: no kernel image is available for execution on the device",
    ),
    "an assembler that does not know this GPU (triton#8539)": (
        "GpuUnsupported", False, "engine.image",
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    ),
    "RDMA that may not lock memory": (
        "GroupDisconnected", False, "IPC_LOCK",
        "pod:88:99 [0] transport/net_ib.cc:800 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    ),
    "RDMA that breaks off": (
        "GroupDisconnected", True, "NCCL_IB_DISABLE",
        "pod:88:99 [0] NCCL WARN NET/IB: Got completion from peer 10.0.0.2<4791> with status=IBV_WC_RETRY_EXC_ERR(12)",
    ),
    "an interface that is not there": (
        "GroupDisconnected", False, "NCCL_SOCKET_IFNAME",
        "pod:88:99 [0] NCCL WARN Bootstrap : no socket interface found",
    ),
    "an interface that Gloo does not find": (
        "GroupDisconnected", False, "GLOO_SOCKET_IFNAME", "RuntimeError: Unable to find address for: eth1",
    ),
    "Gloo between nodes (sglang#3226)": (
        "GroupDisconnected", False, "engine.env",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
    ),
    "NCCL between nodes (gpustack#2125)": (
        "GroupDisconnected", False, "NetworkPolicies", NCCL + "remote process exited or there was a network error",
    ),
    "a rank that waits for another's identity": (
        "GroupDisconnected", False, "NetworkPolicies",
        "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from "
        "[0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms",
    ),
    "the scheduler's watchdog (sglang#33393)": (
        "EngineHung", True, "engine.settings.watchdog_timeout",
        "[2026-11-29 20:02:08 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
    ),
    "the watchdog of older releases (sglang#3752)": (
        "EngineHung", True, "engine.settings.watchdog_timeout",
        "[2026-11-29 20:02:08 TP0] Watchdog timeout (self.watchdog_timeout=300)",
    ),
    "a library that does not fit": (
        "ConfigurationError", False, "engine.image",
        "ImportError: cannot import name 'Qwen3VLConfig' from 'transformers' (/usr/lib/python3/transformers/__init__.py)",
    ),
    "graphs that cannot be captured": (
        "ConfigurationError", False, "engine.settings.mem_fraction_static",
        "Exception: Capture cuda graph failed: CUDA error: operation not permitted when stream is capturing",
    ),
    "an error of the start that nobody knows": (
        "ConfigurationError", False, "engine.settings",
        "[rank1]: RuntimeError: The size of tensor a (5120) must match the size of tensor b (4096)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reason", "served", "field", "line"), ROWS.values(), ids=ROWS)
def test_a_cause_and_its_remedy_come_first_and_the_log_last(reason: str, served: bool, field: str, line: str) -> None:
    lines = [f"[2026-11-29 20:00:00] server_args={{'x': 'ERROR {FAILURES}'}}", HIT, line, *GRAPHS, SIGQUIT]
    found = classify(Exit(signal=9), lines, was_ready=served, oom_kills=0, device="cuda", in_group=reason[:2] == "Gr")
    said, _, log = found.message.partition(" The engine ended ")
    assert found.reason == reason
    assert field in said
    assert line.removeprefix("[rank1]: ").strip().rstrip(".") in log
    assert "server_args" not in found.message


def test_every_row_has_lines() -> None:
    lines = [line.removeprefix("[rank1]: ") for *_, line in ROWS.values()]
    hung = (
        "[rank1]:[E1129 20:02:08] [PG ID 2 PG GUID 3 Rank 1] Watchdog caught collective operation timeout: WorkNCCL(x)"
    )
    assert [cause.text for cause in CAUSES if not any(map(cause.sign.search, [*lines, hung]))] == []
    assert (
        classify(Exit(signal=9), [HIT, hung, SIGQUIT], was_ready=True, oom_kills=0, device="cuda").reason
        == "EngineHung"
    )


def test_a_soft_watchdog_ends_nothing() -> None:
    lines = ["[2026-11-29 20:02:08] TokenizerManager watchdog timeout (self.watchdog_timeout=300, self.soft=True)"]
    assert classify(Exit(code=1), lines, was_ready=True, oom_kills=0, device="cuda").reason == "EngineExited"


@pytest.mark.parametrize(
    "line",
    [
        "torch.AcceleratorError: CUDA driver error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 20.00 MiB.",
    ],
)
def test_memory_of_the_gpu_in_other_words(line: str) -> None:
    found = classify(Exit(signal=9), [HIT, line, *GRAPHS, SIGQUIT], was_ready=False, oom_kills=0, device="cuda")
    assert found.reason == "OutOfDeviceMemory"
    assert line.rstrip(".") in found.message


def test_a_single_pod_has_no_group_to_blame() -> None:
    lines = [HIT, NCCL + "remote process exited or there was a network error", SIGQUIT]
    assert classify(Exit(signal=9), lines, was_ready=False, oom_kills=0, device="cuda").reason == "SchedulerDied"


def test_signs_take_little_time_on_any_line() -> None:
    began = time.process_time()
    for text in (
        "Error: ",
        "a.",
        "NCCL WARN Call to ibv_",
        "watchdog timeout (self.watchdog_timeout=1",
        "ptxas fatal  ",
    ):
        for cause in CAUSES:
            for _ in range(20):
                cause.sign.search((text * READ_CHARACTERS)[:READ_CHARACTERS])
    assert time.process_time() - began < 2
