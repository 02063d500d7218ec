"""`:getIamPolicy`, `:setIamPolicy` and `:testIamPermissions` of topics, subscriptions and snapshots.

What a caller may do is decided by its role and the broker's rules, and `testIamPermissions` says that. A policy that
is set is kept and given back, and gives nobody a right. Invariant: a permission that is told is one that the caller has
now.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.pubsub.bodies import answer, decoded
from mqttlite.extensions.pubsub.iam_policies import Policy
from mqttlite.extensions.pubsub.names import queue_name, snapshot_name, snapshot_resource, topic_name, topic_resource
from mqttlite.extensions.pubsub.snapshots import may_seek
from mqttlite.extensions.pubsub.topics import BODY
from mqttlite.extensions.pubsub.visibility import sees_queue, sees_topic
from mqttlite.extensions.queues.resources import subscription_resource
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes

MAX_PERMISSIONS: Final = 100
"""Of one question, as with Google."""

_LOOKS: Final = frozenset({"get", "list"})


class SetRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    policy: Policy = Policy()
    update_mask: str = ""
    resource: str = ""


class TestRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    permissions: list[str] = []
    resource: str = ""


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/v1/projects/{project}", "Google Pub/Sub")
    queueing, iam = context.queueing, context.iam
    assert queueing is not None, "the API rests on queues"
    assert iam is not None, "the routes belong to it"
    queues = queueing.queues

    def topic(project: str, name: str) -> tuple[str, bool]:
        return topic_name(project, name), context.topics.named(topic_name(project, name)) is not None

    def subscription(project: str, name: str) -> tuple[str, bool]:
        return queue_name(project, name), queue_name(project, name) in queues

    def snapshot(project: str, name: str) -> tuple[str, bool]:
        found = snapshot_name(project, name)
        return found, any(each.name == found for each in queues.snapshots.of())

    def may_use(caller: Caller, kind: str, name: str, action: str) -> bool:
        """Whether the rules let a caller publish, consume or seek, or its role the rest."""
        if (kind, action) == ("topics", "publish"):
            return context.core.permissions.may_publish(caller.source, name.encode())
        if (kind, action) == ("subscriptions", "consume"):
            return context.core.permissions.may_subscribe(caller.source, f"$queue/{name}".encode())
        if (kind, action) == ("snapshots", "seek"):
            return may_seek(context, caller, queues.snapshots.get(name).queue)
        if action not in _LOOKS:
            return caller.may(Role.ADMIN)
        if kind == "topics":
            return caller.may(Role.VIEWER) and sees_topic(context, caller, name)
        queue = name if kind == "subscriptions" else queues.snapshots.get(name).queue
        return caller.may(Role.VIEWER) and sees_queue(context, caller, queue)

    def add(kind: str, find: Callable[[str, str], tuple[str, bool]], resource_of: Callable[[str], str]) -> None:
        path = f"/{kind}/{{name}}"

        def existing(project: str, name: str) -> str:
            found, exists = find(project, name)
            if not exists:
                raise Problem(Code.NOT_FOUND, f"there is no projects/{project}/{kind}/{name}")
            return resource_of(found)

        @route.get(f"{path}:getIamPolicy", Role.ADMIN, f"The policy of one of the {kind}")
        @route.get(f"{path}/getIamPolicy", Role.ADMIN)
        async def get_policy(project: str, name: str) -> Response:
            return answer(iam.get(existing(project, name)))

        @route.post(
            f"{path}:setIamPolicy",
            Role.ADMIN,
            f"Keep a policy for one of the {kind}; it gives nobody a right",
            operation=BODY,
        )
        @route.post(f"{path}/setIamPolicy", Role.ADMIN)
        async def set_policy(project: str, name: str, request: Request) -> Response:
            body = decoded(await request.body(), SetRequest)
            return answer(await iam.put(existing(project, name), body.policy))

        @route.post(
            f"{path}:testIamPermissions",
            Role.USER,
            f"Which permissions the caller has on one of the {kind}",
            operation=BODY,
        )
        @route.post(f"{path}/testIamPermissions", Role.USER)
        async def test_permissions(caller: Caller, project: str, name: str, request: Request) -> Response:
            wanted = decoded(await request.body(), TestRequest).permissions
            if len(wanted) > MAX_PERMISSIONS:
                raise Problem(Code.INVALID_VALUE, f"permissions has {len(wanted)}: {MAX_PERMISSIONS} at most")
            found, exists = find(project, name)
            held: list[Any] = []
            for each in wanted:
                prefix, _, action = each.rpartition(".")
                if "*" in each or not prefix:
                    raise Problem(Code.INVALID_VALUE, f"permissions has {each[:80]!r}: pubsub.{kind}.… is meant")
                if exists and prefix == f"pubsub.{kind}" and may_use(caller, kind, found, action):
                    held.append(each)
            return answer({"permissions": held} if held else {})

    add("topics", topic, topic_resource)
    add("subscriptions", subscription, subscription_resource)
    add("snapshots", snapshot, snapshot_resource)
    return route.made
