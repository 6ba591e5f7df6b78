"""Leave optional content out when the header ``Brownout-Optional`` says so.

A page often has parts it can do without: recommendations, comments, ratings. Whoever stands in
front of the application (an Evenkeel agent) decides for each request which of them are computed,
so that mandatory content stays fast when there is more load than capacity. This package reads
that decision and tells what became of it. It decides nothing itself: without the header, or with
one it does not understand, every part is computed.

    app = BrownoutMiddleware(app)            # ASGI; BrownoutWSGIMiddleware for WSGI

    if optional("recommendations"):          # anywhere below, as deep as it may be
        page.recommendations = recommend(item)
"""

from ._decision import Decision
from ._request import Brownout, current, optional, outgoing_headers
from .asgi import BrownoutMiddleware
from .wsgi import BrownoutWSGIMiddleware

__all__ = [
    "Brownout",
    "BrownoutMiddleware",
    "BrownoutWSGIMiddleware",
    "Decision",
    "current",
    "optional",
    "outgoing_headers",
]
__version__ = "0.1.0"
