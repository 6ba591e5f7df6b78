"""The decision on one request, what was asked of it, and how deep code finds it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Dict, Iterator, List, Optional, Tuple

from ._decision import Decision

REQUEST_HEADER = "Brownout-Optional"
RESPONSE_HEADER = "Brownout-Served"

Headers = List[Tuple[str, str]]

# What lets a cache keep a lean page, or confirm one later. The last three are for caches that
# heed them before Cache-Control (RFC 9213, Edge Architecture, nginx).
_CACHEABLE = frozenset(
    (
        "etag",
        "last-modified",
        "cache-control",
        "cdn-cache-control",
        "surrogate-control",
        "x-accel-expires",
    )
)


def optional(part: str = "") -> bool:
    """Whether this optional part is to be computed for the request being served.

    Outside of a request, and in threads that were not given its context, always.
    """
    brownout = _current.get()
    return brownout is None or brownout.optional(part)


def current() -> Optional[Brownout]:
    """The decision on the request being served; ``None`` outside of one."""
    return _current.get()


def outgoing_headers() -> Dict[str, str]:
    """The headers that tell inner services to obey the decision on the request being served.

    A page is consistently full or lean if the decision falls once, at the edge. Empty if there
    is no decision.
    """
    brownout = _current.get()
    return {} if brownout is None else brownout.outgoing_headers()


class Brownout:
    """The decision on one request; remembers which parts the application was refused.

    May be asked from several threads at once.
    """

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self._lock = threading.Lock()
        self._asked = False
        self._refused: Dict[str, None] = {}
        self._promised_full = False

    def optional(self, part: str = "") -> bool:
        """Whether this optional part is to be computed; without a name, the page's only one.

        Ask before the first byte of the body leaves. If the head is gone and did not say that
        the response is lean, caches may keep it, so every later answer is yes.
        """
        allowed = self.decision.allows(part)
        with self._lock:
            self._asked = True
            allowed = allowed or self._promised_full
            if not allowed:
                self._refused[part] = None
        return allowed

    @property
    def refused(self) -> Tuple[str, ...]:
        """The parts that were asked for and answered no, in the order they were asked first."""
        with self._lock:
            return tuple(self._refused)

    def outgoing_headers(self) -> Dict[str, str]:
        """The headers that tell inner services to obey this decision; empty if there is none."""
        value = self.decision.value
        return {} if value is None else {REQUEST_HEADER: value}

    def _mark(self, headers: Headers) -> Headers:
        """The head of the response as it leaves: what was served, and for caches.

        What the application says itself of what it served stays.
        """
        own = [value for name, value in headers if name.lower() == RESPONSE_HEADER.lower()]
        with self._lock:
            lean = bool(self._refused) or not Decision.read(own).item
            self._promised_full = not lean
            asked = self._asked
        if lean:
            headers = [field for field in headers if field[0].lower() not in _CACHEABLE]
            headers.append(("Cache-Control", "no-store"))
        if asked and not own:
            headers = [*headers, (RESPONSE_HEADER, "?0" if lean else "?1")]
        return headers


@contextmanager
def serving(brownout: Brownout) -> Iterator[None]:
    """Makes it the current one."""
    token = _current.set(brownout)
    try:
        yield
    finally:
        _current.reset(token)


_current: ContextVar[Optional[Brownout]] = ContextVar("evenkeel_brownout", default=None)
