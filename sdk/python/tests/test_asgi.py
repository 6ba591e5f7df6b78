"""BrownoutMiddleware under Starlette, FastAPI and Django, on uvicorn's two HTTP protocols."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Dict, Iterator, List

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from evenkeel_brownout import (
    Brownout,
    BrownoutMiddleware,
    current,
    optional,
    outgoing_headers,
)

from .conftest import can_be_sent, get, lines_of, uvicorn_serving
from .test_decision import CASES

CACHEABLE = {
    "ETag": '"1"',
    "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT",
    "Cache-Control": "public, max-age=60",
    "CDN-Cache-Control": "max-age=600",
}


def deep(*parts: str) -> Dict[str, bool]:
    return {part: optional(part) for part in parts}


async def page(request: Any) -> Response:
    """Asks for the parts in the query, `ask=a,b`."""
    asked = request.query_params.get("ask")
    answers = deep(*asked.split(",")) if asked is not None else {}
    return JSONResponse({"answers": answers, "pass": outgoing_headers()}, headers=CACHEABLE)


async def late(request: Any) -> Response:
    """Asks while the body is generated: before its first byte, and after it."""

    async def body() -> AsyncIterator[str]:
        yield f"{optional('first')} "
        await asyncio.sleep(0.01)
        yield f"{optional('second')}"

    return StreamingResponse(body(), headers=CACHEABLE)


async def too_late(request: Any) -> Response:
    async def body() -> AsyncIterator[str]:
        yield "head "
        yield f"{optional('second')}"

    return StreamingResponse(body(), headers=CACHEABLE)


async def events(request: Any) -> Response:
    released = request.app.state.released = asyncio.Event()

    async def body() -> AsyncIterator[str]:
        await released.wait()
        yield "data: 1\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


async def release(request: Any) -> Response:
    request.app.state.released.set()
    return PlainTextResponse("released")


async def fails(request: Any) -> Response:
    optional("comments")
    raise RuntimeError("the page is broken")


async def fails_later(request: Any) -> Response:
    async def body() -> AsyncIterator[str]:
        optional("comments")
        raise RuntimeError("the page is broken")
        yield ""

    return StreamingResponse(body())


async def own_word(request: Any) -> Response:
    if "ask" in request.query_params:
        optional("comments")
    served = request.query_params["served"]
    return PlainTextResponse("x", headers={"Brownout-Served": served, **CACHEABLE})


async def state(request: Any) -> Response:
    brownout: Brownout = request.state.brownout
    assert brownout is current() is request.scope["state"]["brownout"]
    brownout.optional("comments")
    brownout.optional("ratings")
    brownout.optional("comments")
    return JSONResponse(brownout.refused)


async def slow(request: Any) -> Response:
    before = optional("comments")
    await asyncio.sleep(0.01)
    inner = await asyncio.create_task(_asks())
    return JSONResponse([before, inner, optional("comments")])


async def _asks() -> bool:
    await asyncio.sleep(0)
    return optional("comments")


async def with_task(request: Any) -> Response:
    seen: List[bool] = request.app.state.seen
    task = BackgroundTask(lambda: seen.append(optional("mail")))
    return PlainTextResponse("x", headers=CACHEABLE, background=task)


async def file(request: Any) -> Response:
    optional("comments")
    return FileResponse(__file__)


def starlette_app() -> Starlette:
    handlers = [
        page, late, too_late, events, release, fails, fails_later, own_word, state, slow,
        with_task, file,
    ]  # fmt: skip
    app = Starlette(routes=[Route(f"/{handler.__name__}", handler) for handler in handlers])
    app.add_middleware(BrownoutMiddleware)
    app.state.seen = []
    return app


@pytest.fixture(scope="module", params=["h11", "httptools"])
def port(request: Any) -> Iterator[int]:
    if request.param == "httptools":
        pytest.importorskip("httptools")
    with uvicorn_serving(starlette_app(), request.param) as number:
        yield number


def test_the_table_over_a_socket(port: int) -> None:
    sent = 0
    for case in CASES:
        lines = lines_of(case)
        if not can_be_sent(lines):
            continue
        sent += 1
        ask = ",".join(case["parts"]) or "some-other"
        expected = dict(case["parts"]) or {"some-other": case["others"]}
        answer = get(port, f"/page?ask={ask}", *lines)
        assert (answer.status, case["name"]) == (200, case["name"])
        assert httpx.Response(200, text=answer.body).json()["answers"] == expected, case["name"]
        assert answer.served == ("?1" if all(expected.values()) else "?0"), case["name"]
    assert sent >= 90


def test_full_content_keeps_its_caching(port: int) -> None:
    for decision in ([], ["?1"], ["?0;comments"], ["garbage"], ["?0", "?0"]):
        answer = get(port, "/page?ask=comments", *decision)
        assert answer.served == "?1"
        assert {name: answer.one(name) for name in CACHEABLE} == CACHEABLE


def test_lean_content_is_a_200_that_no_cache_keeps(port: int) -> None:
    answer = get(port, "/page?ask=comments,ratings", "?0;comments")
    assert (answer.status, answer.served) == (200, "?0")
    assert answer.one("Cache-Control") == "no-store"
    for name in ("ETag", "Last-Modified", "CDN-Cache-Control", "Vary"):
        assert answer.one(name) is None
    assert answer.one("Content-Length") == str(len(answer.body))


def test_an_application_that_never_asks_sees_nothing_change(port: int) -> None:
    answer = get(port, "/page", "?0")
    assert answer.served is None
    assert {name: answer.one(name) for name in CACHEABLE} == CACHEABLE


def test_the_decision_is_passed_on_as_it_came(port: int) -> None:
    assert '"pass":{"Brownout-Optional":"?0; a=\\"x\\""}' in get(port, "/page", '?0; a="x"').body
    assert '"pass":{}' in get(port, "/page").body
    assert '"pass":{}' in get(port, "/page", "?0;").body


def test_the_applications_own_word_stays(port: int) -> None:
    partly = get(port, "/own_word?served=%3F0;comments", "?1")
    assert partly.served == "?0;comments"
    assert partly.one("Cache-Control") == "no-store" and partly.one("ETag") is None
    # It was refused a part, and found another way to serve it: believed, but not cached.
    full = get(port, "/own_word?served=%3F1&ask=1", "?0")
    assert full.served == "?1"
    assert full.one("Cache-Control") == "no-store"
    assert get(port, "/own_word?served=%3F1", "?0").one("ETag") == '"1"'


def test_the_state_of_the_request(port: int) -> None:
    assert get(port, "/state", "?0").body == '["comments","ratings"]'
    assert get(port, "/state", "?0;ratings").body == '["comments"]'
    assert get(port, "/state").body == "[]"


def test_a_generated_body_may_ask_before_its_first_byte(port: int) -> None:
    answer = get(port, "/late", "?0")
    assert (answer.body, answer.served) == ("False False", "?0")
    assert answer.one("Cache-Control") == "no-store" and answer.one("ETag") is None
    answer = get(port, "/late", "?1")
    assert (answer.body, answer.served) == ("True True", "?1")


def test_what_can_no_longer_be_marked_lean_is_full(port: int) -> None:
    answer = get(port, "/late", "?0;first")
    assert (answer.body, answer.served) == ("True True", "?1")
    assert answer.one("ETag") == '"1"'
    answer = get(port, "/too_late", "?0")
    assert (answer.body, answer.served) == ("head True", None)


def test_a_stream_of_events_has_its_head_before_an_event(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        with client.stream("GET", "/events", headers={"Brownout-Optional": "?0"}) as response:
            assert response.status_code == 200
            assert client.get("/release").text == "released"
            assert response.read() == b"data: 1\n\n"


def test_errors_stay_errors(port: int) -> None:
    for decision in ([], ["?1"], ["?0"]):
        assert get(port, "/fails", *decision).status == 500
        assert get(port, "/nowhere", *decision).status == 404
    # The head was held, so the server can still answer with the error's.
    assert get(port, "/fails_later", "?0").status == 500


def test_a_file_is_sent_lean(port: int) -> None:
    answer = get(port, "/file", "?0")
    assert (answer.status, answer.served) == (200, "?0")
    assert answer.one("ETag") is None and answer.one("Last-Modified") is None
    assert get(port, "/file", "?1").one("ETag") is not None


def test_concurrent_requests_do_not_see_each_others_decision(port: int) -> None:
    decisions = [("?0", False), ("?1", True), ("?0;comments", True), ("?1;comments=?0", False)]

    def ask(number: int) -> None:
        value, expected = decisions[number % len(decisions)]
        answer = get(port, "/slow", value)
        assert answer.body == str([expected] * 3).lower().replace(" ", "")
        assert answer.served == ("?1" if expected else "?0")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(200)))
    assert current() is None and optional("comments") is True and outgoing_headers() == {}


def test_a_task_after_an_unmarked_response_is_not_refused() -> None:
    app = starlette_app()
    with uvicorn_serving(app) as port:
        answer = get(port, "/with_task", "?0")
    assert (answer.served, answer.one("ETag")) == (None, '"1"')
    assert app.state.seen == [True]


def test_fastapi_with_sync_handlers_and_the_older_middleware_class() -> None:
    app = FastAPI()

    async def outer(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Refused"] = ",".join(request.state.brownout.refused)
        return response

    app.add_middleware(BaseHTTPMiddleware, dispatch=outer)
    app.add_middleware(BrownoutMiddleware)

    @app.get("/items/{item}")
    def item(item: int, request: Request) -> Dict[str, Any]:
        return {"item": item, **deep("comments", "ratings")}

    with uvicorn_serving(app) as port:
        answer = get(port, "/items/7", "?0;ratings")
        assert answer.body == '{"item":7,"comments":false,"ratings":true}'
        assert (answer.served, answer.one("X-Refused")) == ("?0", "comments")
        assert get(port, "/items/7").served == "?1"
        assert get(port, "/items/x", "?0").status == 422


def test_in_process_nothing_is_left_behind() -> None:
    async def twice() -> List[str]:
        transport = httpx.ASGITransport(app=starlette_app())
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            lean = await client.get("/slow", headers={"Brownout-Optional": "?0"})
            assert current() is None
            full = await client.get("/slow")
        return [lean.headers["Brownout-Served"], full.headers["Brownout-Served"]]

    assert asyncio.run(twice()) == ["?0", "?1"]


def test_other_scopes_and_messages_pass() -> None:
    seen: List[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["type"], current() is not None, optional("comments")))
        await send({"type": f"{scope['type']}.message"})

    async def send(message: Any) -> None:
        seen.append(message["type"])

    async def receive() -> Any:
        raise AssertionError("nobody asked")

    header = (b"brownout-optional", b"?0")
    for kind in ("lifespan", "websocket", "http"):
        scope = {"type": kind, "headers": [header]}
        asyncio.run(BrownoutMiddleware(app)(scope, receive, send))
        assert ("state" in scope) is (kind != "lifespan")
    assert seen == [
        ("lifespan", False, True), "lifespan.message",
        ("websocket", True, False), "websocket.message",
        ("http", True, False), "http.message",
    ]  # fmt: skip


def test_a_head_without_a_body_leaves_all_the_same() -> None:
    sent: List[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        optional()
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody asked")

    scope = {"type": "http", "headers": [(b"Brownout-Optional", b"?0")]}
    asyncio.run(BrownoutMiddleware(app)(scope, receive, send))
    headers = [(b"cache-control", b"no-store"), (b"brownout-served", b"?0")]
    assert sent == [{"type": "http.response.start", "status": 204, "headers": headers}]
