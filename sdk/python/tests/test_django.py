"""Django under both middlewares, with its own caching middleware inside."""

from __future__ import annotations

from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from evenkeel_brownout import BrownoutMiddleware, BrownoutWSGIMiddleware, optional

from .conftest import get, uvicorn_serving, wsgiref_serving


def view(request: Any) -> HttpResponse:
    return HttpResponse(f"comments {optional('comments')}")


urlpatterns = [path("", view)]

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    MIDDLEWARE=["django.middleware.http.ConditionalGetMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for tests only",
    USE_TZ=True,
)
django.setup()


def check(port: int) -> None:
    lean = get(port, "/", "?0")
    assert (lean.status, lean.body, lean.served) == (200, "comments False", "?0")
    assert lean.one("ETag") is None and lean.one("Cache-Control") == "no-store"
    full = get(port, "/")
    assert (full.body, full.served) == ("comments True", "?1")
    tag = full.one("ETag")
    assert tag is not None and full.one("Cache-Control") is None
    # Who has the full page may keep it when it would be full again, and not when it is lean.
    assert get(port, "/", If_None_Match=tag).status == 304
    assert get(port, "/", "?0", If_None_Match=tag).status == 200


def test_wsgi() -> None:
    with wsgiref_serving(BrownoutWSGIMiddleware(get_wsgi_application())) as port:
        check(port)


def test_asgi() -> None:
    with uvicorn_serving(BrownoutMiddleware(get_asgi_application())) as port:
        check(port)
