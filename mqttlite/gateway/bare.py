"""Routes without the framework, for speed. An endpoint gets its caller and the variable part of its path.

The application admits the caller before; an endpoint reads its body with `Bodies`, and raises `Problem` itself.
Invariant: bare routes come before the routers' routes, and no path belongs to both.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqttlite.gateway.bodies import Bodies, Receive, Scope, Send
from mqttlite.gateway.caller import Caller
from mqttlite.gateway.context import GatewayContext

WEBSOCKET: Final = "(WebSocket)"
"""Stands for the method of a route that is a WebSocket: no request has a method like that."""


@dataclass(frozen=True, slots=True)
class BareRoute:
    """A route without the framework: `endpoint` is called with what the path has between `prefix` and `suffix`."""

    method: str
    prefix: str
    suffix: str
    endpoint: Callable[[Caller, str, Scope, Receive, Send], Awaitable[None]]
    path: str
    """In the words of OpenAPI, such as `/api/v1/topics/{topic_id}/publish`."""
    description: dict[str, Any]
    """The operation in OpenAPI."""
    takes_token: bool = False
    """Whether `?token=` is a login here, for pages that send no header."""
    is_counted: bool = True
    """Whether requests count in `requests_per_s`; those that publish count in the quotas."""

    def match(self, path: str) -> str | None:
        """The variable part of a path; None if the route is not for it."""
        if not path.startswith(self.prefix) or not path.endswith(self.suffix):
            return None
        middle = path[len(self.prefix) : len(path) - len(self.suffix)]
        return middle if middle or not self.suffix else None


BareRouteFactory = Callable[[GatewayContext, Bodies], Sequence[BareRoute]]
