"""`/api/v1/delayed`: list and cancel delayed messages."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.lists import Limit, Listed, listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.gateway.topic_routes import Done
from mqttlite.operations.admin import DelayedEntry


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "messages", served_on=OPERATORS)
    admin = context.admin

    @route.get("/delayed", Role.VIEWER, "List delayed messages", reach=Reach.LIST)
    async def list_delayed(
        cursor: Annotated[str, Meta(pattern="^[0-9]{0,18}$")] = "", limit: Limit = 100
    ) -> Listed[DelayedEntry]:
        """Messages to `$delayed/…` that are not due yet."""
        return listed(admin.delayed(cursor, limit))

    @route.delete("/delayed/{number}", Role.OPERATOR, "Cancel a delayed message")
    async def cancel_delayed(number: int) -> Done:
        """It is dropped, with the reason `purged`."""
        if not admin.cancel_delayed(number):
            raise Problem(Code.NOT_FOUND, f"there is no delayed message {number}, or it is due")
        return Done(success=True)

    return route.made
