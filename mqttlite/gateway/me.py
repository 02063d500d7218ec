"""`/api/v1/me`: the caller's identity and role.

Invariant: it needs no more than credentials that are accepted, or the right to have none.
"""

from collections.abc import Sequence
from datetime import datetime
from math import inf

import msgspec

from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.routing import Route, Routes


class Me(msgspec.Struct):
    """The caller, as the gateway knows it."""

    username: str | None
    role: str
    how: str
    """`anonymous`, `login`, or `key <id>`."""
    expires_at: datetime | None
    """When the credentials expire; None: never."""


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "caller")

    @route.get("/me", Role.USER, "The caller: its user, role and permissions")
    async def me(caller: Caller) -> Me:
        expires_at = caller.grants.expires_at
        return Me(
            username=caller.username,
            role=caller.role.name.lower(),
            how=caller.how,
            expires_at=None if expires_at == inf else context.wall(expires_at),
        )

    return route.made
