"""BrownoutProvider with the real SDK, alone and around its in-memory provider."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List

import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.event import ProviderEvent, ProviderEventDetails
from openfeature.provider import ProviderStatus
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

from evenkeel_brownout import BrownoutMiddleware
from evenkeel_brownout.openfeature import BROWNOUT, BrownoutProvider

from .conftest import get, uvicorn_serving

SWITCH = {"on": True, "off": False}
FLAGS: Dict[str, InMemoryFlag[Any]] = {
    "recommendations": InMemoryFlag("on", SWITCH),
    "comments": InMemoryFlag("off", SWITCH),
    "new-checkout": InMemoryFlag("on", SWITCH),
    "colour": InMemoryFlag("main", {"main": "blue"}),
    "limit": InMemoryFlag("main", {"main": 7}),
    "ratio": InMemoryFlag("main", {"main": 0.5}),
    "tree": InMemoryFlag("main", {"main": {"a": 1}}),
}


@contextmanager
def client_of(provider: BrownoutProvider) -> Iterator[OpenFeatureClient]:
    api.set_provider(provider, "brownout-test")
    try:
        yield api.get_client("brownout-test")
    finally:
        api.clear_providers()


def serve(ask: Any, *decision: str) -> Any:
    """What `ask` answers inside of a request, and the whole answer."""
    answers: List[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answer = ask()
        answers.append(await answer if asyncio.iscoroutine(answer) else answer)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def root(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await BrownoutMiddleware(app)(scope, receive, send)

    with uvicorn_serving(root) as port:
        return get(port, "/", *decision), answers[0]


def test_a_named_flag_is_dimmed_and_others_are_not() -> None:
    provider = BrownoutProvider(["recommendations", "comments"], InMemoryProvider(FLAGS))
    with client_of(provider) as client:
        answer, details = serve(
            lambda: client.get_boolean_details("recommendations", True), "?0;comments"
        )
        assert (details.value, details.reason, answer.served) == (False, BROWNOUT, "?0")
        answer, value = serve(lambda: client.get_boolean_value("new-checkout", False), "?0")
        assert (value, answer.served) == (True, None)
        answer, details = serve(lambda: client.get_boolean_details("recommendations", False), "?1")
        assert (details.value, details.variant, answer.served) == (True, "on", "?1")


def test_a_flag_that_is_off_was_not_left_out() -> None:
    provider = BrownoutProvider(["comments"], InMemoryProvider(FLAGS))
    with client_of(provider) as client:
        answer, value = serve(lambda: client.get_boolean_value("comments", True), "?0")
    assert (value, answer.served, answer.one("Cache-Control")) == (False, None, None)


def test_the_asynchronous_way() -> None:
    provider = BrownoutProvider(["recommendations"], InMemoryProvider(FLAGS))
    with client_of(provider) as client:
        answer, value = serve(
            lambda: client.get_boolean_value_async("recommendations", True), "?0"
        )
    assert (value, answer.served) == (False, "?0")


def test_alone_every_flag_has_its_default() -> None:
    with client_of(BrownoutProvider(["recommendations"])) as client:
        _, value = serve(lambda: client.get_boolean_value("recommendations", True), "?0")
        assert value is False
        assert client.get_boolean_value("recommendations", True) is True, "outside of a request"
        _, value = serve(lambda: client.get_boolean_value("recommendations", False), "?1")
        assert value is False
        assert client.get_string_value("colour", "red") == "red"


def test_everything_else_is_the_inner_providers() -> None:
    inner = InMemoryProvider(FLAGS)
    provider = BrownoutProvider(["recommendations"], inner)
    seen: List[ProviderEventDetails] = []
    with client_of(provider) as client:
        assert client.get_string_value("colour", "") == "blue"
        assert client.get_integer_value("limit", 0) == 7
        assert client.get_float_value("ratio", 0.0) == 0.5
        assert client.get_object_value("tree", {}) == {"a": 1}
        assert client.get_provider_status() == ProviderStatus.READY
        client.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, seen.append)
        inner.emit_provider_configuration_changed(ProviderEventDetails(flags_changed=["limit"]))
        assert asyncio.run(client.get_string_value_async("colour", "")) == "blue"
        assert asyncio.run(client.get_integer_value_async("limit", 0)) == 7
        assert asyncio.run(client.get_float_value_async("ratio", 0.0)) == 0.5
        assert asyncio.run(client.get_object_value_async("tree", {})) == {"a": 1}
    assert provider.get_metadata().name == "brownout of In-Memory Provider"
    assert [event.flags_changed for event in seen] == [["limit"]]


def test_tracking_reaches_the_inner_provider_if_it_tracks() -> None:
    class Tracks(InMemoryProvider):
        seen: List[Any] = []

        def track(self, *args: Any, **kwargs: Any) -> None:
            self.seen.append(args)

    inner = Tracks(FLAGS)
    BrownoutProvider([], inner).track("bought")
    assert inner.seen == [("bought",)]
    BrownoutProvider([], InMemoryProvider(FLAGS)).track("bought")


def test_one_text_is_no_list_of_parts() -> None:
    with pytest.raises(TypeError, match="'comments'"):
        BrownoutProvider("comments")
