"""Our code inside the engine must never fail a request, whatever a release of SGLang does differently."""

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("vlm_runtime")


class FailSafe:
    """Calls our code until its first error, which becomes one line in the engine's log."""

    def __init__(self, what: str) -> None:
        """``what``: the metrics that are lost then, for the log line."""
        self._what = what
        self.is_off = False

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The function's result; None after an error."""
        if self.is_off:
            return None
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self.is_off = True
            logger.warning("vlm-runtime: no metrics of %s: %s: %s", self._what, type(error).__name__, error)
            return None


def hook(owner: type, method: str, kind: str, function: Callable[..., Any]) -> None:
    """Registers a hook with SGLang's own registry and applies it; the owner's module is loaded already.

    ``kind``: a name of SGLang's HookType, such as AROUND. Raises if this release has no registry or ignores the hook.
    """
    before = getattr(owner, method)
    plugins = import_module("sglang.srt.plugins.hook_registry")
    target = f"{owner.__module__}.{owner.__qualname__}.{method}"
    source = plugins.HookSource(plugin_name="vlm_serving", dist_name="vlm-operator")
    plugins.HookRegistry.register(target, function, plugins.HookType[kind], source=source)
    plugins.HookRegistry.apply_hooks()
    if getattr(owner, method) is before:
        raise RuntimeError(f"the hook on {target} was not applied")
