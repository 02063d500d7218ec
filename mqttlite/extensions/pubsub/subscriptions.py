"""`/v1/projects/{project}/subscriptions`: queues of one topic each, and consuming from them by pulling.

Consuming needs the permission on `$queue/<name>`, as over MQTT. Invariant: what an answer says is on disk: messages are
leased before they are told, and an acknowledged message does not come back.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.pubsub.bodies import (
    AcknowledgeRequest,
    ModifyAckDeadlineRequest,
    PullRequest,
    answer,
    check_ack_ids,
    decoded,
    received,
)
from mqttlite.extensions.pubsub.lists import PageSize, PageToken, page, start_of
from mqttlite.extensions.pubsub.names import (
    check_project,
    is_detached,
    queue_name,
    topic_of_queue,
    topic_of_subscription,
    topic_resource,
)
from mqttlite.extensions.pubsub.subscription_bodies import (
    CHANGEABLE,
    ModifyPushConfigRequest,
    SubscriptionBody,
    UpdateSubscriptionRequest,
    changes_of,
    options_of,
    push_of,
    subscription_json,
)
from mqttlite.extensions.pubsub.topics import BODY
from mqttlite.extensions.pubsub.visibility import sees_queue
from mqttlite.extensions.queues.errors import NoSuchQueue, PushRefused, QueueExists, TooManyQueues
from mqttlite.extensions.queues.options import MAX_DEADLINE_S, QueueOptions
from mqttlite.extensions.queues.resources import subscription_resource
from mqttlite.extensions.queues.service import Pulled, Queues
from mqttlite.gateway.caller import Caller, Callers, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes

MaxMessages = Annotated[
    int,
    Meta(
        ge=0,
        le=0x7FFF_FFFF,
        description="The same as in the body, which may be empty",
        extra={"name": "maxMessages"},
    ),
]

_FIXED: Final = {"filters": "topic", "filter": "filter", "ordering": "enableMessageOrdering"}
"""What a PUT does not change."""

PULL_WAIT_S: Final = 5.0
"""How long a pull waits for a first message, unless it says `returnImmediately`."""

READ_WAIT_S: Final = 0.5
"""How long one that says so waits while the first messages of a long queue are read from the store."""

READ_LOOK_S: Final = 0.005
READ_LOOKS: Final = 20
"""How often it looks at first, and how many times: messages of a long queue are read in some milliseconds."""

LOOK_S: Final = 0.05
"""How often a pull that waits looks."""

MAX_WAITING_PULLS: Final = 200
"""Each looks at its queue twenty times a second, some 20 µs each time: these take a tenth of a core."""


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/v1/projects/{project}/subscriptions", "Google Pub/Sub")
    queueing, iam = context.queueing, context.iam
    assert queueing is not None, "the API rests on queues"
    assert iam is not None, "the routes belong to it"
    queues = queueing.queues
    pulls = Pulls(context, queues)

    def found(project: str, subscription: str, reader: Caller | None = None) -> str:
        """The queue of a subscription. Raises `Problem` where there is none, or its reader does not see it."""
        name = queue_name(project, subscription)
        try:
            if topic_of_queue(queues.options(name)) and (reader is None or sees_queue(context, reader, name)):
                return name
        except NoSuchQueue:
            pass
        raise Problem(Code.NOT_FOUND, f"there is no subscription projects/{project}/subscriptions/{subscription}")

    def consumed(caller: Caller, project: str, subscription: str) -> str:
        """The queue of a subscription, which the caller may consume."""
        check_may_consume(context, caller, queue_name(project, subscription))
        return found(project, subscription)

    def shown(name: str) -> dict[str, Any]:
        options = queues.options(name)
        return subscription_json(subscription_resource(name), topic_of_queue(options), options)

    def made(options: dict[str, Any]) -> QueueOptions:
        """Raises `Problem` for what cannot be together, and for a dead letter topic that there is not."""
        try:
            found = QueueOptions(**options)
        except ValueError as error:
            raise Problem(Code.INVALID_VALUE, str(error)) from None
        dead_letter_topic = found.dead_letter_topic
        if dead_letter_topic and context.topics.named(dead_letter_topic) is None:
            raise Problem(Code.NOT_FOUND, f"there is no topic {topic_resource(dead_letter_topic)} for dead letters")
        return found

    def changed(name: str, changes: dict[str, Any]) -> None:
        options = queues.options(name)
        push, before = changes.get("push"), options.push
        if push is not None and before is not None:  # what Google's members do not say stays as it is
            changes["push"] = msgspec.structs.replace(before, url=push.url, wrapper=push.wrapper)
        try:
            queues.change(made(msgspec.structs.asdict(options) | changes))
        except PushRefused as error:
            raise Problem(Code.INVALID_VALUE, f"pushConfig.pushEndpoint: {error}") from None

    def replace(name: str, options: QueueOptions) -> None:
        """Change what may change of a subscription that is there. Raises `Problem`."""
        before = queues.options(name)
        for member, what in _FIXED.items():
            if getattr(before, member) != getattr(options, member):
                raise Problem(
                    Code.CONFLICT, f"there is a subscription {name} already, and its {what} cannot be changed"
                )
        members = {member: getattr(options, member) for member in CHANGEABLE}
        if any(getattr(before, member) != value for member, value in members.items()):
            changed(name, members)

    @route.put("/{subscription}", Role.ADMIN, "Make a subscription of a topic, or change it", operation=BODY)
    async def create(project: str, subscription: str, request: Request) -> Response:
        name = queue_name(project, subscription)
        body = decoded(await request.body(), SubscriptionBody)
        topic = topic_of_subscription(project, body.topic)
        record = context.topics.named(topic)
        given = {"name": name, "filters": (topic,), **options_of(body)}
        if record is not None and not body.message_retention_duration:
            given["expiry_s"] = record.message_retention_days * 86_400
        options = made(given)
        if record is None:
            raise Problem(Code.NOT_FOUND, f"there is no topic {body.topic[:200]}")
        if name not in queues:
            await iam.forget(subscription_resource(name))  # of one that was deleted elsewhere
        try:
            queues.create(options)
        except PushRefused as error:
            raise Problem(Code.INVALID_VALUE, f"pushConfig.pushEndpoint: {error}") from None
        except QueueExists:
            replace(name, options)
        except TooManyQueues as error:
            raise Problem(Code.QUOTA_EXCEEDED, str(error)) from None
        await context.loop_driver.settled()
        return answer(shown(name))

    @route.get("", Role.VIEWER, "List the subscriptions of a project")
    async def list_subscriptions(
        caller: Caller, project: str, page_size: PageSize = 0, page_token: PageToken = ""
    ) -> Response:
        check_project(project)
        prefix = f"{project}."
        start = start_of(prefix, page_token)
        names = sorted(name for name in queues.names if name.startswith(prefix) and name >= start)

        def entries() -> Iterator[tuple[str, Any]]:
            for name in names:
                is_one = name != page_token and subscription_resource(name) and topic_of_queue(queues.options(name))
                if is_one and sees_queue(context, caller, name):
                    yield name, shown(name)

        return page("subscriptions", entries(), page_size)

    @route.get("/{subscription}", Role.VIEWER, "Show a subscription")
    async def show(caller: Caller, project: str, subscription: str) -> Response:
        return answer(shown(found(project, subscription, caller)))

    @route.patch("/{subscription}", Role.ADMIN, "Change a subscription", operation=BODY)
    async def change(project: str, subscription: str, request: Request) -> Response:
        changes = changes_of(decoded(await request.body(), UpdateSubscriptionRequest))
        name = found(project, subscription)
        changed(name, changes)
        await context.loop_driver.settled()
        return answer(shown(name))

    @route.post(
        "/{subscription}:modifyPushConfig",
        Role.ADMIN,
        "Push messages to an endpoint, or have them pulled",
        operation=BODY,
    )
    @route.post("/{subscription}/modifyPushConfig", Role.ADMIN)
    async def modify_push(project: str, subscription: str, request: Request) -> Response:
        body = decoded(await request.body(), ModifyPushConfigRequest)
        changed(found(project, subscription), push_of(body.push_config))
        await context.loop_driver.settled()
        return answer({})

    @route.delete("/{subscription}", Role.ADMIN, "Delete a subscription with its messages and dead letters")
    async def delete(project: str, subscription: str) -> Response:
        name = found(project, subscription)
        queues.delete(name)
        await iam.forget(subscription_resource(name))
        await context.loop_driver.settled()
        return answer({})

    @route.post(
        "/{subscription}:detach", Role.ADMIN, "Drop the messages of a subscription, and take no more of its topic"
    )
    @route.post("/{subscription}/detach", Role.ADMIN)
    async def detach(project: str, subscription: str) -> Response:
        name = found(project, subscription)
        options = queues.options(name)
        if options.filters:
            queues.change(msgspec.structs.replace(options, filters=(), detached_from=options.filters[0]))
        queues.purge(name)
        await queueing.seeks.finish(name)
        return answer({})

    @route.post("/{subscription}:pull", Role.USER, "Lease messages", operation=BODY, is_traffic=True)
    @route.post("/{subscription}/pull", Role.USER, is_traffic=True)
    async def pull(
        caller: Caller, project: str, subscription: str, request: Request, max_messages: MaxMessages = 0
    ) -> Response:
        given = await request.body()
        name = consumed(caller, project, subscription)
        body = decoded(given, PullRequest)
        most = body.max_messages or max_messages
        if queues.options(name).push is not None:
            raise Problem(
                Code.POLICY_REFUSES, "this method is not supported for this subscription type: its messages are pushed"
            )
        if is_detached(queues.options(name)):
            raise Problem(Code.POLICY_REFUSES, "the subscription was detached from its topic: it has no messages")
        if most < 1:
            raise Problem(Code.INVALID_VALUE, f"maxMessages is {most}: 1 at least")
        pulled = pulls.pull(name, most, caller)
        if not pulled and not body.return_immediately:
            pulled = await pulls.wait(name, most, request, PULL_WAIT_S)
        elif not pulled and queues.state(name).waiting:
            pulled = await pulls.wait(name, most, request, READ_WAIT_S)
        await context.loop_driver.settled()
        return answer({"receivedMessages": [received(each) for each in pulled]} if pulled else {})

    @route.post("/{subscription}:acknowledge", Role.USER, "Acknowledge messages", operation=BODY, is_traffic=True)
    @route.post("/{subscription}/acknowledge", Role.USER, is_traffic=True)
    async def acknowledge(caller: Caller, project: str, subscription: str, request: Request) -> Response:
        given = await request.body()
        name = consumed(caller, project, subscription)
        body = decoded(given, AcknowledgeRequest)
        check_ack_ids(body.ack_ids)
        done = queues.ack(name, body.ack_ids)
        await context.loop_driver.settled()
        return answer(_unknown(body.ack_ids, done))

    @route.post(
        "/{subscription}:modifyAckDeadline",
        Role.USER,
        "Extend leases, or end them (0)",
        operation=BODY,
        is_traffic=True,
    )
    @route.post("/{subscription}/modifyAckDeadline", Role.USER, is_traffic=True)
    async def modify(caller: Caller, project: str, subscription: str, request: Request) -> Response:
        given = await request.body()
        name = consumed(caller, project, subscription)
        body = decoded(given, ModifyAckDeadlineRequest)
        check_ack_ids(body.ack_ids)
        seconds = body.ack_deadline_seconds or 0
        if not 0 <= seconds <= MAX_DEADLINE_S:
            raise Problem(Code.INVALID_VALUE, f"ackDeadlineSeconds is {seconds}: it may be 0 to {MAX_DEADLINE_S:g}")
        done = queues.extend(name, body.ack_ids, seconds) if seconds else queues.nack(name, body.ack_ids)
        await context.loop_driver.settled()
        return answer(_unknown(body.ack_ids, done))

    @route.get("/{subscription}/snapshot", Role.VIEWER, "Show the position of a subscription")
    async def position(caller: Caller, project: str, subscription: str) -> Response:
        name = found(project, subscription, caller)
        at, messages = queues.position(name).first, queues.state(name).depth
        return answer({"subscription": subscription_resource(name), "position": str(at), "messages": messages})

    return route.made


def _unknown(ack_ids: list[str], done: list[bool]) -> dict[str, list[str]]:
    """The ids of no unfinished message, if any. Google's answer does not have them, and its client ignores them."""
    unknown = [ack_id for ack_id, is_done in zip(ack_ids, done, strict=True) if not is_done]
    return {"unknownAckIds": unknown} if unknown else {}


class Pulls:
    """Pulls, and those that wait."""

    def __init__(self, context: GatewayContext, queues: Queues) -> None:
        self._context: Final = context
        self._queues: Final = queues
        self._waiting = 0

    def pull(self, name: str, most: int, caller: Caller) -> list[Pulled]:
        """Lease what is there. Raises `Problem`."""
        check_may_consume(self._context, caller, name)
        return self._queues.pull(name, most, consumer=caller.client_id)

    async def wait(self, name: str, most: int, request: Request, seconds: float) -> list[Pulled]:
        """Wait for a first message, as long as there is somebody to get it. Raises `Problem`."""
        if self._waiting >= MAX_WAITING_PULLS:
            headers = {"Retry-After": "1"}
            raise Problem(Code.BUSY, f"{MAX_WAITING_PULLS} pulls are waiting; try again", headers=headers)
        self._waiting += 1
        try:
            return await self._wait(name, most, request, self._context.clock() + seconds)
        except NoSuchQueue:
            raise Problem(Code.NOT_FOUND, f"the queue {name} was deleted") from None
        finally:
            self._waiting -= 1

    async def _wait(self, name: str, most: int, request: Request, until: float) -> list[Pulled]:
        context = self._context
        callers: Callers = request.app.callers
        stopping: asyncio.Event = request.app.stopping
        looks = 0
        while context.clock() < until and not stopping.is_set():
            context.loop_driver.wake()  # a long queue may have to be read
            await asyncio.sleep(READ_LOOK_S if looks < READ_LOOKS else LOOK_S)
            looks += 1
            if await request.is_disconnected():
                break
            if self._queues.state(name).waiting:
                caller = await callers.admit(request, is_counted=False)  # its credentials may have ended meanwhile
                pulled = self.pull(name, most, caller)
                if pulled:
                    return pulled
        return []


def check_may_consume(context: GatewayContext, caller: Caller, name: str) -> None:
    """Raises `Problem` where the rules do not let a caller consume a queue."""
    permissions = context.core.permissions
    topic = f"$queue/{name}".encode()
    if not permissions.may_subscribe(caller.source, topic):
        why = permissions.told(caller.source, "subscribe", topic)
        raise Problem(Code.NOT_AUTHORIZED, f"the caller may not consume $queue/{name}: {why or 'denied'}")
