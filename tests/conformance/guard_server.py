"""A server with the engine's own check of the key behind the runtime's plugin: ``guard_server.py PORT WORKERS``.

``AUTH_FILE``: a release's sglang/srt/utils/auth.py. Every path answers 200 with what the application sees.
"""

import os
import runpy
import sys

import uvicorn
from fastapi import FastAPI, Request, WebSocket

app = FastAPI()
auth = runpy.run_path(os.environ["AUTH_FILE"])
auth["add_api_key_middleware"](app, api_key=os.environ["AUTH_KEY"], admin_api_key=None)


@app.websocket("/v1/realtime")
async def realtime(socket: WebSocket) -> None:
    await socket.accept()
    await socket.close()


@app.post("/v1/upload")
async def upload(request: Request) -> dict[str, str]:
    return {"path": str(len(await request.body()))}


@app.api_route("/{path:path}", methods=["GET", "POST"])
async def answer(request: Request) -> dict[str, str]:
    return {"path": request.scope["path"], "client": request.client.host if request.client else ""}


def main() -> None:
    from vlm_runtime.sglang.inside import serving

    port, workers = int(sys.argv[1]), int(sys.argv[2])
    serving.install()
    # As SGLang does: an object for one worker, a name for several.
    uvicorn.run("guard_server:app" if workers > 1 else app, host="0.0.0.0", port=port, workers=workers, root_path="")


if __name__ == "__main__":
    main()
