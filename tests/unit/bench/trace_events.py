"""Events as PyTorch's profiler writes them for a GPU."""

from __future__ import annotations

from itertools import count
from typing import Any

Event = dict[str, Any]

# Names as they stand in traces of SGLang on Hopper GPUs.
NVJET = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"
FLASH_3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
    "cute::tuple<cute::C<1>, cute::C<1>>>>>>(flash::FlashAttnFwdSm90::Params)"
)
FLASHINFER_DECODE = (
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 4u, 8u, 16u, 2u, 8u, "
    "flashinfer::DefaultAttention<false, false, false, false>, __nv_bfloat16>(Params)"
)
FLASHINFER_NORM = (
    "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*, float)"
)
ACT_AND_MUL = "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu>(__nv_bfloat16*, int)"
ROTARY = "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheEnhancedKernel<true, 128u>(Params)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CUSTOM_REDUCE = "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>(sglang::RankData*)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(TensorIteratorBase&)>(int)"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<...>(...)"
LAYER_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)"


class Recording:
    """Kernels one after the other on one stream, each launched by an operator of one thread."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._ids = count(1)
        self._at = 1000.0

    def kernel(
        self, name: str, us: float, *, shapes: list[list[int]] | None = None, graph: bool = False, stream: int = 7
    ) -> None:
        """A kernel; one of a CUDA graph has no operator of its own."""
        number = next(self._ids)
        if not graph:
            args = {"External id": number, "Input Dims": shapes or []}
            self.events.append(self._cpu("cpu_op", "aten::op", 4.0, args))
        self.events.append(self._cpu("cuda_runtime", "cudaLaunchKernel", 2.0, {"correlation": number}))
        args = {"correlation": number, "stream": stream, "External id": 0 if graph else number}
        self.events.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": self._at, "dur": us, "args": args}
        )
        self._at += us

    def wait(self, us: float) -> None:
        """Nothing runs."""
        self._at += us

    def frame(self, name: str, category: str, *kernels: tuple[str, float]) -> None:
        """Kernels that are launched inside a module or a mark."""
        start = self._at
        for kernel in kernels:
            self.kernel(*kernel)
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 1,
                "tid": 1,
                "ts": start,
                "dur": self._at - start,
                "args": {},
            }
        )

    def step(self, name: str) -> None:
        """The engine's mark of a forward pass."""
        self.events.append(self._cpu("user_annotation", name, 1.0, {}))

    def _cpu(self, category: str, name: str, us: float, args: dict[str, Any]) -> Event:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": self._at, "dur": us, "args": args}
