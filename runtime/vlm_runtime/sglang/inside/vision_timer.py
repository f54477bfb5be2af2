"""SGLang's general plugin for the schedulers: measures how long the vision tower takes.

SGLang loads it in each scheduler once that process has imported its modules and has the engine's resolved settings.
Elsewhere it does nothing. On a GPU it records events in the stream and reads them when they have completed: nothing ever
waits for the GPU.
"""

import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from vlm_runtime.sglang.inside import metric_specs
from vlm_runtime.sglang.inside.failsafe import FailSafe, hook

_SCHEDULER: Final = "sglang.srt.managers.scheduler"
_METHOD: Final = "get_image_feature"
# Batches whose end was not read yet. More than this exist only if nothing is encoded, so the oldest may go.
_MOST_PENDING: Final = 64


def install() -> None:
    """SGLang calls it in each of its processes; it acts only in those that run the model."""
    if multiprocessing.parent_process() is None or _SCHEDULER not in sys.modules or not metric_specs.are_enabled():
        return
    FailSafe("the vision tower")(_hook_loading)


def _hook_loading() -> None:
    fail_safe = FailSafe("the vision tower")

    def after_loading(_: Any, scheduler: Any, *__: Any, **___: Any) -> None:
        fail_safe(lambda: _hook_model(type(scheduler.tp_worker.model_runner.model)))

    hook(sys.modules[_SCHEDULER].Scheduler, "init_tp_model_worker", "AFTER", after_loading)


def _hook_model(model: type) -> None:
    if hasattr(model, _METHOD):  # a text-only model has none
        hook(model, _METHOD, "AROUND", around_encoding(VisionTimer(sys.modules["torch"])))


class VisionTimer:
    """Times batches of images on the first rank, as the engine's own metrics are taken there."""

    def __init__(self, torch: Any, registry: Any = None) -> None:
        """``registry``: prometheus_client's, for tests."""
        self._torch = torch
        self._registry = registry
        self._first: bool | None = None
        self._pending: deque[tuple[Any, Any]] = deque(maxlen=_MOST_PENDING)
        self._seconds: Any = None
        self._images: Any = None

    def begin(self) -> Any:
        """The start for ``end``; None on another rank."""
        if not self._is_first():
            return None
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return time.perf_counter()
        if cuda.is_current_stream_capturing():
            return None
        return self._event()

    def end(self, began: Any, items: Any) -> None:
        """Counts a batch; on a GPU its time is read later."""
        # One item may hold several images, each with its offset among the tokens.
        self._images.inc(sum(len(getattr(item, "offsets", None) or (0,)) for item in items))
        if isinstance(began, float):
            self._seconds.observe(time.perf_counter() - began)
            return
        self._pending.append((began, self._event()))
        while self._pending and self._pending[0][1].query():
            first, last = self._pending.popleft()
            self._seconds.observe(first.elapsed_time(last) / 1000)

    def _event(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _is_first(self) -> bool:
        if self._first is None:
            distributed = self._torch.distributed
            self._first = not distributed.is_initialized() or distributed.get_rank() == 0
            if self._first:  # created here, so that other ranks have no series
                self._seconds = metric_specs.VISION_ENCODE.create(self._registry)
                self._images = metric_specs.VISION_IMAGES.create(self._registry)
        return self._first


def around_encoding(timer: VisionTimer) -> Callable[..., Any]:
    """SGLang's AROUND hook: the original function comes first, then the model and the batch's images."""
    fail_safe = FailSafe("the vision tower")

    def around(original: Callable[..., Any], model: Any, items: Any, *args: Any, **kwargs: Any) -> Any:
        began = fail_safe(timer.begin)
        result = original(model, items, *args, **kwargs)
        if began is not None:
            fail_safe(timer.end, began, items)
        return result

    return around
