"""The ASGI application that ends a request whose body is too large: 413, before the engine has all of it in memory."""

from vlm_runtime.sglang.inside.guard import App, Message, Receive, Scope, Send, error_body


class BodyLimit:
    """An ASGI application in front of another one. Costs a call for each piece of a body, and looks into none."""

    def __init__(self, app: App, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        body = _Body(receive, send, self._most_bytes)
        declared = b"".join(value for name, value in scope["headers"] if name.lower() == b"content-length")
        if declared.isdigit() and int(declared[:20]) > self._most_bytes:
            return await body.refuse()
        return await self._app(scope, body.receive, body.send)


class _Body:
    """Counts the body's bytes. After the refusal the application hears that its client has gone, and says no more."""

    def __init__(self, receive: Receive, send: Send, most_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._most_bytes = most_bytes
        self._bytes = 0
        self._answered = self._over = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes <= self._most_bytes:
            return message
        await self.refuse()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self._over:
            self._answered = True
            await self._send(message)

    async def refuse(self) -> None:
        self._over = True
        if self._answered:
            return
        text = (
            f"a request may have {self._most_bytes} bytes: send fewer or smaller images, or raise spec.workload.images"
        )
        body = error_body(text, "request_too_large", 413)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),  # the rest of the body is not read
        ]
        self._answered = True
        await self._send({"type": "http.response.start", "status": 413, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
