"""`/api/v1/me`: the caller's identity and role.

Invariant: it needs no more than credentials that are accepted, or the right to have none.
"""

from datetime import datetime
from math import inf

from fastapi import APIRouter
from pydantic import BaseModel

from mqttlite.gateway.caller import User
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.lazy_route import LazyRoute


class Me(BaseModel):
    """The caller, as the gateway knows it."""

    username: str | None
    role: str
    how: str
    """`anonymous`, `login`, or `key <id>`."""
    expires_at: datetime | None
    """When the credentials expire; None: never."""


def router(context: GatewayContext) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/api/v1", tags=["caller"], route_class=LazyRoute)

    @routes.get("/me", summary="Who the caller is")
    async def me(caller: User) -> Me:
        expires_at = caller.grants.expires_at
        return Me(
            username=caller.username,
            role=caller.role.name.lower(),
            how=caller.how,
            expires_at=None if expires_at == inf else context.wall(expires_at),
        )

    return routes
