"""SGLang's own pool classes with the CPU's memory standing in for a GPU's; prints what the plugin's metrics say.

Runs in a process of its own with the engine's packages: what needs CUDA is taken out, the books are SGLang's.
"""

import contextlib
import json
import sys
from typing import Any

import torch
from prometheus_client import CollectorRegistry
from sglang.srt.multimodal.transport import cuda_ipc, memory_pool

from vlm_runtime.sglang.inside import feature_pool_metrics as plugin
from vlm_runtime.sglang.inside.failsafe import hook

MIB = 1 << 20


class OnGpu(torch.Tensor):
    """A tensor in the CPU's memory that says it lies on the first GPU."""

    is_cuda = True
    device = torch.device("cuda:0")


def pretend_cuda() -> None:
    empty = torch.empty
    torch.empty = lambda *size, device=None, **options: empty(*size, **options).as_subclass(OnGpu)
    torch.cuda.synchronize = torch.cuda.set_device = lambda *_: None
    torch.cuda.device = lambda *_: contextlib.nullcontext()
    torch.UntypedStorage._share_cuda_ = lambda storage: (0, b"handle")
    memory_pool.stream_write_value32 = lambda *_: None


def main() -> None:
    pretend_cuda()
    registry = CollectorRegistry()
    # The recycler would ask the GPU which leases are over, so it sleeps; the test releases them itself.
    pool = cuda_ipc.MmItemMemoryPool(16 * MIB, recycle_interval=3600.0, base_gpu_id=0, consumer_count=1)
    watched = plugin.PoolMetrics(pool, registry)
    hook(type(pool), "wrap_tensor", "AFTER", plugin.after_allocation(watched))
    told: dict[str, dict[str, float]] = {}

    def look(moment: str) -> None:
        watched.sample()
        told[moment] = {
            sample.name.removeprefix("vlmserve_feature_pool_"): sample.value
            for family in registry.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    def wrap(mib: int) -> Any:
        features = torch.zeros(mib * MIB, dtype=torch.uint8).as_subclass(OnGpu)
        return pool.wrap_tensor(features, use_pool_handle_cache=True)

    look("empty")
    proxies = [wrap(6), wrap(6), wrap(6)]
    look("two of three found room")
    with pool._pool._lock:
        pool._pool._release_locked(next(iter(pool._pool._occupied.values())))
        pool._pool._merge_ranges_locked()
    look("one left")
    from vlm_runtime.sglang.inside.image_metrics import feature_bytes

    class Item:
        feature = proxies[0]

        def is_image(self) -> bool:
            return True

    result = {"told": told, "third": repr(proxies[2]), "feature_bytes": feature_bytes({"mm_items": [Item()]})}
    sys.stdout.write(json.dumps(result))


main()
