"""Routes that carry messages: publish, pull, acknowledge. `dependencies=[TRAFFIC]` marks one.

They are POSTs but change nothing of the broker, so they have no line in the audit log and no event.
"""

from typing import Any, Final

from fastapi import Depends
from starlette.requests import HTTPConnection

from mqttlite.gateway.bodies import Scope


async def _mark(request: HTTPConnection) -> None:
    request.scope["state"]["is_traffic"] = True


TRAFFIC: Final[Any] = Depends(_mark)


def is_traffic(scope: Scope) -> bool:
    """Whether the route of a request carries messages."""
    return scope["state"].get("is_traffic", False) is True
