"""Middleware for WSGI: Flask, Django, Pyramid, Bottle."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Tuple

from ._decision import Decision
from ._request import REQUEST_HEADER, Brownout, Headers, serving

Environ = Dict[str, Any]
Write = Callable[[bytes], object]
StartResponse = Callable[..., Write]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

_VARIABLE = "HTTP_" + REQUEST_HEADER.upper().replace("-", "_")


class BrownoutWSGIMiddleware:
    """Puts the decision on each request into ``environ["evenkeel.brownout"]`` and the context.

    Servers join the lines of a header that came twice with a comma, which no decision has.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        lines = [environ[_VARIABLE]] if _VARIABLE in environ else []
        brownout = Brownout(Decision.read(lines))
        environ["evenkeel.brownout"] = brownout
        head = _Head(brownout, start_response)
        with serving(brownout):
            body = self.app(environ, head.start)
        if isinstance(body, (list, tuple)) or _is_file(environ, body):
            head.leave()  # nothing is asked any more, and servers send these in one go
            return body
        return _Body(body, brownout, head)


def _is_file(environ: Environ, body: Iterable[bytes]) -> bool:
    wrapper = environ.get("wsgi.file_wrapper")
    return isinstance(wrapper, type) and isinstance(body, wrapper)


class _Head:
    """Holds the head of the response until the body begins, as servers must (PEP 3333).

    A body that is generated asks for its parts when it is iterated.
    """

    def __init__(self, brownout: Brownout, start_response: StartResponse) -> None:
        self._brownout = brownout
        self._start_response = start_response
        self._held: Optional[Tuple[str, Headers]] = None
        self._server_write: Optional[Write] = None

    def start(self, status: str, headers: Headers, exc_info: Any = None) -> Write:
        if self._server_write is not None:
            return self._start_response(status, headers, exc_info)
        if self._held is not None and exc_info is None:
            raise AssertionError("start_response was called twice, without exc_info")
        self._held = (status, headers)
        return self._write

    def leave(self) -> None:
        if self._held is None:
            return
        (status, headers), self._held = self._held, None
        self._server_write = self._start_response(status, self._brownout._mark(list(headers)))

    def _write(self, data: bytes) -> object:
        self.leave()
        assert self._server_write is not None, "who has this function has called start()"
        return self._server_write(data)


class _Body:
    """The body, in the request's context again each time it goes on."""

    def __init__(self, body: Iterable[bytes], brownout: Brownout, head: _Head) -> None:
        self._body = body
        self._chunks: Optional[Iterator[bytes]] = None
        self._brownout = brownout
        self._head = head

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with serving(self._brownout):
            if self._chunks is None:
                self._chunks = iter(self._body)
            chunk = next(self._chunks, None)
        self._head.leave()
        if chunk is None:
            raise StopIteration
        return chunk

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            with serving(self._brownout):
                close()
