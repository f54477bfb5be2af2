"""The configuration of the server on the engine's port. Only the process that serves HTTP imports it, and its workers.

Its own class, since the workers of --tokenizer-worker-num get a pickled copy and then load any application by name: SGLang's,
or that of a user's SGLANG_HTTP_SERVER_APP_PATH.
"""

from typing import Any

from uvicorn.config import Config

from vlm_runtime.sglang.inside.serving import wrap_app


class GuardedConfig(Config):  # type: ignore[misc]  # the operator's environment has no uvicorn
    """Uvicorn's configuration with the guard outermost.

    Uvicorn itself would put what X-Forwarded-For says of the client in front, and a plugin an application of its own.
    """

    loaded_app: Any

    def load(self) -> None:
        """Loads the application, then puts ours in front of it."""
        super().load()
        self.loaded_app = wrap_app(self.loaded_app)
