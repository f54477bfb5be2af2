"""SGLang's general plugin for the process that serves HTTP: puts our applications in front of SGLang's.

It imports nothing of SGLang before that process serves: importing its server modules early freezes settings before they are
resolved, and importing prometheus_client early removes the engine's own metrics.
"""

import multiprocessing
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from vlm_runtime.sglang.inside import ENV_GUARD, ENV_KEY_DIGEST, drain_file
from vlm_runtime.sglang.inside.body_limit import BodyLimit
from vlm_runtime.sglang.inside.guard import App, Guard, Message, Receive, Scope, Send
from vlm_runtime.sglang.inside.image_metrics import count_images
from vlm_runtime.sglang.inside.in_flight import InFlight
from vlm_runtime.sglang.inside.limits import limits_of_environment
from vlm_runtime.sglang.inside.media_files import refuse_media


def install() -> None:
    """SGLang calls it in each of its processes; it acts only in the one that serves HTTP on that port."""
    port = os.environ.get(ENV_GUARD)
    if not port or multiprocessing.parent_process() is not None:
        return
    config_class: Any = import_module("uvicorn.config").Config
    create = config_class.__init__

    def create_guarded(config: Any, *args: Any, **kwargs: Any) -> None:
        create(config, *args, **kwargs)
        # SGLang also runs small internal servers, which must stay unchanged.
        if str(config.port) == port:
            config.__class__ = import_module("vlm_runtime.sglang.inside.guarded_config").GuardedConfig

    config_class.__init__ = create_guarded


def wrap_app(app: App) -> Guard:
    """SGLang's application behind the guard, with its requests and images counted from its start on."""
    counted = InFlight(app)

    def start() -> None:
        counted.start()
        count_images()
        refuse_media()  # last, so that it runs before the counting

    digest = os.environ.get(ENV_KEY_DIGEST)
    limits = limits_of_environment()
    inner: App = OnStartup(counted, start)
    if limits is not None:
        inner = BodyLimit(inner, limits.body_bytes)
    return Guard(inner, drain_file(os.environ.get(ENV_GUARD, "")), digest)


class OnStartup:
    """An ASGI application that calls ``action`` when the one behind it has started, before its first request."""

    def __init__(self, app: App, action: Callable[[], None]) -> None:
        self._app = app
        self._action = action

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            return await self._app(scope, receive, send)

        async def send_when_ready(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._action()
            await send(message)

        return await self._app(scope, receive, send_when_ready)
