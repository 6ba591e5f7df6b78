"""Middleware for ASGI: FastAPI, Starlette, Django, Litestar, Quart."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, List, MutableMapping, Optional

from ._decision import Decision
from ._request import REQUEST_HEADER, Brownout, serving

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEADER = REQUEST_HEADER.lower().encode("ascii")


class BrownoutMiddleware:
    """Puts the decision on each request into ``scope["state"]["brownout"]`` and the context.

    In Starlette and FastAPI the first is ``request.state.brownout``.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        brownout = Brownout(Decision.read(_lines(scope)))
        scope.setdefault("state", {})["brownout"] = brownout
        with serving(brownout):
            if scope["type"] == "websocket":
                await self.app(scope, receive, send)
                return
            head = _Head(brownout, send)
            await self.app(scope, receive, head.send)
            await head.leave()


def _lines(scope: Scope) -> List[str]:
    headers = scope.get("headers", ())
    return [value.decode("latin-1") for name, value in headers if name.lower() == _HEADER]


class _Head:
    """Holds the head of the response until the body begins, as servers may (ASGI, HTTP spec).

    A response that is generated asks for its parts when it is iterated, which is after its head
    was sent. Not held: a stream of events, whose client may wait for the head before there is an
    event; and a response to a request without a decision, since nothing can be refused.
    """

    def __init__(self, brownout: Brownout, send: Send) -> None:
        self._brownout = brownout
        self._send = send
        self._held: Optional[Message] = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._held = message
            if self._brownout.decision.value is None or _is_event_stream(message):
                await self.leave()
            return
        await self.leave()
        await self._send(message)

    async def leave(self) -> None:
        if self._held is None:
            return
        message, self._held = self._held, None
        headers = message.get("headers", ())
        text = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        marked = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in self._brownout._mark(text)
        ]
        await self._send({**message, "headers": marked})


def _is_event_stream(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message.get("headers", ())
    )
