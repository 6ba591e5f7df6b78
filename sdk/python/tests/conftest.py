"""Real servers on loopback sockets, and a client that sends exactly the headers it is given."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.simple_server import make_server as make_wsgiref_server

import uvicorn
from werkzeug.serving import make_server as make_werkzeug_server


@dataclass
class Answer:
    status: int
    headers: List[Tuple[str, str]]
    body: str

    def all(self, name: str) -> List[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def one(self, name: str) -> Optional[str]:
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def served(self) -> Optional[str]:
        return self.one("Brownout-Served")


def get(port: int, path: str, *decision: str, **others: str) -> Answer:
    """One GET; every decision is a line of Brownout-Optional of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest("GET", path)
        for line in decision:
            connection.putheader("Brownout-Optional", line.encode("utf-8"))
        for name, value in others.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read().decode("utf-8")
        return Answer(response.status, response.getheaders(), body)
    finally:
        connection.close()


@contextmanager
def uvicorn_serving(app: Any, http_protocol: str = "h11") -> Iterator[int]:
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, http=http_protocol, log_level="critical")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline, "uvicorn does not start"
        time.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def _serving(server: Any) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def werkzeug_serving(app: Any) -> Iterator[int]:
    with _serving(make_werkzeug_server("127.0.0.1", 0, app, threaded=True)) as port:
        yield port


@contextmanager
def wsgiref_serving(app: Any) -> Iterator[int]:
    with _serving(make_wsgiref_server("127.0.0.1", 0, app, handler_class=_Quiet)) as port:
        yield port


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def text_of(line: Any) -> str:
    """A line of the table of cases."""
    if isinstance(line, str):
        return line
    return str(line["begin"] + line["fill"] * line["times"] + line["end"])


def lines_of(case: Dict[str, Any]) -> List[str]:
    return [text_of(line) for line in case["lines"]]


def can_be_sent(lines: Sequence[str]) -> bool:
    """Control characters but the tab are refused by clients and servers."""
    return all(letter >= " " or letter == "\t" for line in lines for letter in line)
