"""`/api/v1/dynamic-security/commands`: changes users, groups and roles."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mqttlite.extensions.dynamic_security.control import MAX_COMMANDS, Busy
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes


class Commands(msgspec.Struct, forbid_unknown_fields=True):
    """Commands of Mosquitto's dynamic security, as `$CONTROL/dynamic-security/v1` takes them."""

    commands: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=MAX_COMMANDS)]


class Responses(msgspec.Struct):
    """One response for each command; one that failed has `error`."""

    responses: list[dict[str, Any]]


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "rules")

    @route.post("/dynamic-security/commands", Role.ADMIN, "Change users, groups and roles")
    async def commands(request: Commands, caller: Caller) -> Responses:
        """The answer comes when the change is on disk and in force."""
        control = context.control()
        if control is None:
            raise Problem(
                Code.NOT_AVAILABLE,
                "the configuration has no section dynamic_security: users of password files are changed by "
                "/api/v1/users/{user}, rules by /api/v1/acl/text, and groups in the configuration",
            )
        body = msgspec.json.encode({"commands": request.commands})
        try:
            responses = await control.execute(body, caller.username or caller.how)
        except Busy:
            raise Problem(Code.BUSY, "too many requests wait; try again", headers={"Retry-After": "1"}) from None
        return Responses(responses=responses)

    return route.made
