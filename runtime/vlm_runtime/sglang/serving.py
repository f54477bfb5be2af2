"""SGLang's general plugin for the process that serves HTTP: puts our applications in front of SGLang's.

Only that process is changed, and of SGLang nothing is imported before it serves: a plugin that imports its server
modules early freezes settings before they are resolved, and one that imports prometheus_client early takes the
engine's own metrics away.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from vlm_runtime.sglang import ENV_GUARD, drain_file
from vlm_runtime.sglang.files import refuse_files
from vlm_runtime.sglang.guard import App, Guard, Message, Receive, Scope, Send
from vlm_runtime.sglang.images import count_images
from vlm_runtime.sglang.in_flight import InFlight

# SGLang's workers of --tokenizer-worker-num import their application by this name.
_APP_VARIABLE: Final = "SGLANG_HTTP_SERVER_APP_PATH"
_APP: Final = "sglang.srt.entrypoints.http_server:app"


def install() -> None:
    """What SGLang calls in each of its processes; does something only in the one that serves HTTP on that port."""
    port = os.environ.get(ENV_GUARD)
    if not port or multiprocessing.parent_process() is not None:
        return
    os.environ.setdefault(_APP_VARIABLE, f"{__name__}:app")
    config_class: Any = import_module("uvicorn.config").Config
    load = config_class.load

    def load_behind_ours(config: Any) -> None:
        load(config)
        # SGLang also runs small servers for its own pods, which must stay as they are.
        if str(config.port) == port and not isinstance(config.app, str):
            config.loaded_app = behind_ours(config.loaded_app)

    config_class.load = load_behind_ours


def __getattr__(name: str) -> Any:
    """``app``: SGLang's application behind ours, made when a worker asks for it."""
    if name != "app":
        raise AttributeError(name)
    module, _, attribute = _APP.partition(":")
    return behind_ours(getattr(import_module(module), attribute))


def behind_ours(app: App) -> Guard:
    """SGLang's application behind the guard; its requests and images are counted from its start on."""
    counted = InFlight(app)

    def started() -> None:
        counted.start()
        count_images()
        refuse_files()  # last, in front of what counts

    return Guard(OnceStarted(counted, started), drain_file(os.environ.get(ENV_GUARD, "")))


class OnceStarted:
    """An ASGI application that calls something when the one behind it has started, before its first request."""

    def __init__(self, app: App, started: Callable[[], None]) -> None:
        self._app = app
        self._started = started

    def __getattr__(self, name: str) -> Any:
        # SGLang's workers keep their state on the application.
        return getattr(self._app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            return await self._app(scope, receive, send)

        async def send_when_ready(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._started()
            await send(message)

        return await self._app(scope, receive, send_when_ready)
