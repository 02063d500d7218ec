"""`DELETE /api/v1/topics/{topic_id}/subscribe`: end subscriptions to a topic, whatever made them.

Invariant: a subscription ends, and never a session with its messages. The caller's are those of clients with its user
name, and those of its own connected streams and WebSockets; all others are for operators.
"""

from collections.abc import Sequence
from typing import Any, Final

from mqttlite.gateway.bodies import Bodies, Receive, Scope, Send, query_of
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes


class UnsubscribeRoute:
    """The endpoint of one gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context: Final = context

    async def unsubscribe(self, caller: Caller, topic_id: str, scope: Scope, _: Receive, send: Send) -> None:
        """The endpoint. Raises `Problem`."""
        context = self._context
        name = context.topics.find(topic_id).name.encode()
        client_id = query_of(scope).get("client_id", [""])[0]
        clients = [client_id] if client_id else self._subscribed(caller, name)
        if client_id and not caller.may(Role.OPERATOR) and not self._is_its(caller, client_id):
            raise Problem(
                Code.NOT_AUTHORIZED,
                f"the caller has no client {client_id[:80]!r}: subscriptions of others are ended by operators",
            )
        ended = False
        for each in clients:
            if context.core.unsubscribe(each, name, context.clock()):
                ended = True
                context.sessions.end_unsubscribed(each)
        context.loop_driver.wake()
        body = b'{"success":%s}' % (b"true" if ended else b"false")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _subscribed(self, caller: Caller, name: bytes) -> list[str]:
        """The clients of a user that receive a topic. Raises `Problem`."""
        if caller.username is None:
            raise Problem(Code.INVALID_VALUE, "client_id is missing: without a user name it says whose subscription")
        found = [each.client_id for each in self._context.core.subscribers(name)[0]]
        return [each for each in found if self._is_its(caller, each)]

    def _is_its(self, caller: Caller, client_id: str) -> bool:
        if caller.username is not None:
            session = self._context.core.sessions.get(client_id)
            return session is not None and session.username == caller.username
        return any(each.client_id == client_id for each in self._context.sessions.of(caller.key))


def routes(context: GatewayContext, _bodies: Bodies) -> Sequence[Route]:
    """The route of this module."""
    summary = "End the caller's subscriptions to a topic; for an operator, those of any client"
    route = Routes(tag="subscribe", is_bare=True)
    unsubscribe = UnsubscribeRoute(context).unsubscribe
    route.delete("/api/v1/topics/{topic_id}/subscribe", Role.USER, summary, operation=_UNSUBSCRIBE)(unsubscribe)
    return route.made


_UNSUBSCRIBE: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "client_id",
            "in": "query",
            "required": False,
            "schema": {"type": "string"},
            "description": "Only of that client",
        },
    ],
    "responses": {
        "200": {
            "description": "Whether there were any",
            "content": {
                "application/json": {"schema": {"type": "object", "properties": {"success": {"type": "boolean"}}}}
            },
        }
    },
}
