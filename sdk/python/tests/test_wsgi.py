"""BrownoutWSGIMiddleware under Flask and plain WSGI, on werkzeug's and wsgiref's servers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterable, Iterator, List
from wsgiref.util import FileWrapper
from wsgiref.validate import validator

import flask
import pytest

from evenkeel_brownout import (
    Brownout,
    BrownoutWSGIMiddleware,
    current,
    optional,
    outgoing_headers,
)

from .conftest import can_be_sent, get, lines_of, werkzeug_serving, wsgiref_serving
from .test_decision import CASES

CACHEABLE = {
    "ETag": '"1"',
    "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT",
    "Cache-Control": "public, max-age=60",
    "Surrogate-Control": "max-age=600",
}


def flask_app() -> flask.Flask:
    app = flask.Flask("shop")

    @app.get("/page")
    def page() -> flask.Response:
        asked = flask.request.args.get("ask")
        answers = {part: optional(part) for part in asked.split(",")} if asked else {}
        response = flask.jsonify(answers=answers, outgoing=outgoing_headers())
        response.headers.update(CACHEABLE)
        return response

    @app.get("/late")
    def late() -> flask.Response:
        def body() -> Iterator[str]:
            yield f"{optional('first')} "
            time.sleep(0.01)
            yield f"{optional('second')}"

        return flask.Response(body(), headers=CACHEABLE)

    @app.get("/environ")
    def environ() -> str:
        brownout: Brownout = flask.request.environ["evenkeel.brownout"]
        assert brownout is current()
        brownout.optional("comments")
        return ",".join(brownout.refused)

    @app.get("/slow")
    def slow() -> Any:
        before = optional("comments")
        time.sleep(0.01)
        return [before, optional("comments")]

    @app.get("/file")
    def file() -> flask.Response:
        optional("comments")
        return flask.send_file(__file__, max_age=60)

    @app.get("/fails")
    def fails() -> str:
        optional("comments")
        raise RuntimeError("the page is broken")

    app.wsgi_app = BrownoutWSGIMiddleware(app.wsgi_app)  # type: ignore[method-assign]
    return app


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with werkzeug_serving(flask_app()) as number:
        yield number


def test_the_table_over_a_socket(port: int) -> None:
    sent = 0
    for case in CASES:
        lines = lines_of(case)
        if not can_be_sent(lines):
            continue
        sent += 1
        expected: Dict[str, bool] = dict(case["parts"]) or {"some-other": case["others"]}
        answer = get(port, f"/page?ask={','.join(expected)}", *lines)
        assert flask.json.loads(answer.body)["answers"] == expected, case["name"]
        assert answer.served == ("?1" if all(expected.values()) else "?0"), case["name"]
    assert sent >= 90


def test_full_content_keeps_its_caching(port: int) -> None:
    for decision in ([], ["?1"], ["?0;comments"], ["garbage"], ["?0", "?0"]):
        answer = get(port, "/page?ask=comments", *decision)
        assert answer.served == "?1"
        assert {name: answer.one(name) for name in CACHEABLE} == CACHEABLE


def test_lean_content_is_a_200_that_no_cache_keeps(port: int) -> None:
    answer = get(port, "/page?ask=comments", "?0")
    assert (answer.status, answer.served) == (200, "?0")
    assert answer.one("Cache-Control") == "no-store"
    for name in ("ETag", "Last-Modified", "Surrogate-Control", "Vary"):
        assert answer.one(name) is None


def test_an_application_that_never_asks_sees_nothing_change(port: int) -> None:
    answer = get(port, "/page", "?0")
    assert answer.served is None
    assert {name: answer.one(name) for name in CACHEABLE} == CACHEABLE
    assert '"outgoing":{"Brownout-Optional":"?0"}' in answer.body


def test_the_environment(port: int) -> None:
    assert get(port, "/environ", "?0").body == "comments"
    assert get(port, "/environ", "?1").body == ""


def test_a_generated_body_may_ask_before_its_first_byte(port: int) -> None:
    answer = get(port, "/late", "?0")
    assert (answer.body, answer.served) == ("False False", "?0")
    assert answer.one("ETag") is None
    answer = get(port, "/late", "?0;first")
    assert (answer.body, answer.served) == ("True True", "?1")


def test_a_file_is_sent_lean(port: int) -> None:
    answer = get(port, "/file", "?0")
    assert (answer.status, answer.served) == (200, "?0")
    assert answer.one("Cache-Control") == "no-store" and answer.one("ETag") is None
    assert len(answer.body) == int(answer.one("Content-Length") or 0) > 1000


def test_errors_stay_errors(port: int) -> None:
    answer = get(port, "/fails", "?0")
    assert (answer.status, answer.served, answer.one("Cache-Control")) == (500, "?0", "no-store")
    assert get(port, "/nowhere", "?0").status == 404


def test_concurrent_requests_do_not_see_each_others_decision(port: int) -> None:
    decisions = [("?0", False), ("?1", True), ("?0;comments", True), ("?1;comments=?0", False)]

    def ask(number: int) -> None:
        value, expected = decisions[number % len(decisions)]
        answer = get(port, "/slow", value)
        assert flask.json.loads(answer.body) == [expected] * 2
        assert answer.served == ("?1" if expected else "?0")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(200)))
    assert current() is None and optional("comments") is True


# Plain WSGI: the corners of PEP 3333, behind wsgiref's validator on both sides.

Plain = Callable[[Dict[str, Any], Any], Iterable[bytes]]


def serve_once(app: Any, *decision: str) -> Any:
    checked = validator(BrownoutWSGIMiddleware(validator(app)))
    with wsgiref_serving(checked) as port:
        return get(port, "/", *decision)


def start_of_nothing(status: str, headers: Any, exc_info: Any = None) -> Callable[[bytes], None]:
    return lambda data: None


HEADERS = [("Content-Type", "text/plain"), ("ETag", '"1"')]


def test_a_list_and_a_body_of_nothing() -> None:
    for chunks in ([b"x"], [b"", b"x"], []):

        def app(environ: Dict[str, Any], start_response: Any) -> List[bytes]:
            start_response("200 OK", list(HEADERS))
            optional()
            return chunks

        answer = serve_once(app, "?0")
        assert (answer.body, answer.served) == ("".join(c.decode() for c in chunks), "?0")
        unchecked = BrownoutWSGIMiddleware(app)
        assert unchecked({"HTTP_BROWNOUT_OPTIONAL": "?0"}, start_of_nothing) is chunks


def test_a_generator_that_starts_late_and_is_closed_in_context() -> None:
    closed: List[bool] = []

    def app(environ: Dict[str, Any], start_response: Any) -> Iterator[bytes]:
        try:
            start_response("200 OK", list(HEADERS))
            yield b""
            yield str(optional()).encode()
        finally:
            closed.append(current() is not None)

    answer = serve_once(app, "?0")
    # The empty first chunk asks the server for nothing, yet the head has to be known by then.
    assert (answer.body, answer.served, answer.one("ETag")) == ("True", None, '"1"')
    assert closed == [True] and current() is None


def test_a_body_is_closed_in_context() -> None:
    class Body:
        closed_in: Any = None

        def __iter__(self) -> Iterator[bytes]:
            return iter([b"x"])

        def close(self) -> None:
            self.closed_in = current()

    body = Body()
    environ: Dict[str, Any] = {"HTTP_BROWNOUT_OPTIONAL": "?0"}
    response = BrownoutWSGIMiddleware(lambda *_: body)(environ, start_of_nothing)
    response.close()  # type: ignore[attr-defined]
    assert body.closed_in is environ["evenkeel.brownout"] is not None
    assert current() is None


def test_write() -> None:
    def app(environ: Dict[str, Any], start_response: Any) -> List[bytes]:
        write = start_response("200 OK", list(HEADERS))
        word = optional()
        write(f"{word} ".encode())
        write(b"and ")
        return [str(optional()).encode()]

    answer = serve_once(app, "?0")
    assert (answer.body, answer.served) == ("False and False", "?0")


def test_an_error_page_replaces_a_head_that_has_not_left() -> None:
    def app(environ: Dict[str, Any], start_response: Any) -> List[bytes]:
        start_response("200 OK", list(HEADERS))
        try:
            raise RuntimeError("late")
        except RuntimeError as error:
            start_response("500 Oh", [HEADERS[0]], (RuntimeError, error, error.__traceback__))
        return [b"sorry"]

    answer = serve_once(app, "?0")
    assert (answer.status, answer.body, answer.one("ETag")) == (500, "sorry", None)


def test_an_error_after_the_head_left_is_the_servers() -> None:
    started: List[Any] = []

    def server(status: str, headers: Any, exc_info: Any = None) -> Any:
        started.append(status)
        if exc_info is not None:
            raise exc_info[1]
        return lambda data: None

    def app(environ: Dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"x"
        start_response("500 Oh", [], (RuntimeError, RuntimeError("late"), None))

    body = BrownoutWSGIMiddleware(app)({}, server)
    with pytest.raises(RuntimeError, match="late"):
        list(body)
    assert started == ["200 OK", "500 Oh"]


def test_two_heads_are_a_mistake() -> None:
    def app(environ: Dict[str, Any], start_response: Any) -> List[bytes]:
        start_response("200 OK", [])
        start_response("200 OK", [])
        return []

    with pytest.raises(AssertionError, match="twice"):
        BrownoutWSGIMiddleware(app)({}, start_of_nothing)


def test_a_files_wrapper_reaches_the_server() -> None:
    wrapper = FileWrapper(open(__file__, "rb"))

    def app(environ: Dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return wrapper

    environ = {"wsgi.file_wrapper": FileWrapper}
    assert BrownoutWSGIMiddleware(app)(environ, start_of_nothing) is wrapper
    wrapper.close()
