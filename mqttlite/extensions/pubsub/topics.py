"""`/v1/projects/{project}/topics`: the topics made over HTTP, and publishing to them.

A topic here is the same as one of `/api/v1/topics` with the name `project/topic`. Invariant: the answer to a publish
leaves when its messages are in each subscription, and on disk.
"""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.core.reasons import NACKED
from mqttlite.extensions.pubsub.bodies import (
    PublishRequest,
    TopicBody,
    answer,
    check_messages,
    check_topic,
    decoded,
    properties_of,
)
from mqttlite.extensions.pubsub.lists import PageSize, PageToken, page, start_of
from mqttlite.extensions.pubsub.names import (
    check_project,
    topic_name,
    topic_resource,
)
from mqttlite.extensions.pubsub.visibility import sees_queue, sees_topic
from mqttlite.extensions.queues.errors import NoSuchQueue
from mqttlite.extensions.queues.resources import subscription_resource
from mqttlite.extensions.queues.service import Queues
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.publishing import Draft, Publishing, checked
from mqttlite.gateway.routing import Route, Routes
from mqttlite.security.topic_records import TopicRecord

SLICE: Final = 100
"""Messages of a publish, or queues of a deleted topic, that are seen to before others have their turn."""


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/v1/projects/{project}/topics", "Google Pub/Sub")
    queueing, iam = context.queueing, context.iam
    assert queueing is not None, "the API rests on queues"
    assert iam is not None, "the routes belong to it"
    queues, topics = queueing.queues, context.topics
    permissions = context.core.permissions
    publishing = Publishing(context)

    def found(project: str, topic: str, reader: Caller | None = None) -> TopicRecord:
        """Raises `Problem` where there is none, or its reader does not see it."""
        record = topics.named(topic_name(project, topic))
        if record is None or (reader is not None and not sees_topic(context, reader, record.name)):
            raise Problem(Code.NOT_FOUND, f"there is no topic projects/{project}/topics/{topic}")
        return record

    @route.put("/{topic}", Role.ADMIN, "Make a topic", operation=BODY)
    async def create(caller: Caller, project: str, topic: str, request: Request) -> Response:
        name = topic_name(project, topic)
        check_topic(decoded(await request.body(), TopicBody))
        created_at = context.wall(context.clock()).timestamp()
        topic_id = f"t-{secrets.token_hex(8)}"
        if context.topics.named(name) is None:
            await iam.forget(topic_resource(name))  # of one that was deleted elsewhere
        made = TopicRecord(topic_id=topic_id, name=name, owner=caller.username, created_at=created_at)
        await topics.add(made, is_limited=False)
        return _topic(name)

    @route.get("", Role.VIEWER, "List the topics of a project")
    async def list_topics(
        caller: Caller, project: str, page_size: PageSize = 0, page_token: PageToken = ""
    ) -> Response:
        check_project(project)
        prefix = f"{project}/"
        start = start_of(prefix, page_token)

        def entries() -> Iterator[tuple[str, Any]]:
            for each in topics.from_name(start):
                if not each.name.startswith(prefix):
                    return
                resource = topic_resource(each.name)
                if resource and each.name != page_token and sees_topic(context, caller, each.name):
                    yield each.name, {"name": resource, "state": "ACTIVE"}

        return page("topics", entries(), page_size)

    @route.get("/{topic}", Role.VIEWER, "Show a topic")
    async def show(caller: Caller, project: str, topic: str) -> Response:
        return _topic(found(project, topic, caller).name)

    @route.delete("/{topic}", Role.ADMIN, "Delete a topic; its subscriptions keep their messages")
    async def delete(project: str, topic: str) -> Response:
        record = found(project, topic)
        await topics.remove(record.topic_id)
        await iam.forget(topic_resource(record.name))
        for at, name in enumerate(queues_of(queues, project, record.name)):
            with suppress(NoSuchQueue):  # somebody deleted it meanwhile
                options = queues.options(name)
                queues.change(msgspec.structs.replace(options, filters=()))
            if at % SLICE == SLICE - 1:
                context.loop_driver.run()
                await asyncio.sleep(0)
        await context.loop_driver.settled()
        return answer({})

    @route.get("/{topic}/subscriptions", Role.VIEWER, "List the subscriptions of a topic")
    async def subscriptions(
        caller: Caller, project: str, topic: str, page_size: PageSize = 0, page_token: PageToken = ""
    ) -> Response:
        record = found(project, topic, caller)
        start = start_of(f"{project}.", page_token)
        names = [each for each in queues_of(queues, project, record.name) if each >= start]
        entries = (
            (each, subscription_resource(each))
            for each in names
            if each != page_token and sees_queue(context, caller, each)
        )
        return page("subscriptions", entries, page_size)

    @route.post("/{topic}:publish", Role.USER, "Publish messages to a topic", operation=BODY, is_traffic=True)
    @route.post("/{topic}/publish", Role.USER, is_traffic=True)
    async def publish(caller: Caller, project: str, topic: str, request: Request) -> Response:
        name = topic_name(project, topic).encode()
        if not permissions.may_publish(caller.source, name):
            why = permissions.told(caller.source, "publish", name)
            raise Problem(Code.NOT_AUTHORIZED, f"the caller may not publish to {name.decode()!r}: {why or 'denied'}")
        found(project, topic)
        body = await request.body()
        messages = decoded(body, PublishRequest).messages
        check_messages(messages)
        drafts = [Draft(name, each.data, 1, properties=checked(properties_of(each))) for each in messages]
        return answer({"messageIds": await publish_all(publishing.admit(caller, len(drafts), len(body)), drafts)})

    async def publish_all(caller: Caller, drafts: list[Draft]) -> list[str]:
        """Publish one after the other. Where one is refused, those before it are published: a publisher that tries
        again publishes them twice, as Google allows."""
        numbers: list[str] = []
        try:
            for at, draft in enumerate(drafts):
                ticket = publishing.offer(caller, draft)
                if not ticket.done:
                    await context.loop_driver.finish(ticket)
                outcome = publishing.outcome(caller, draft, ticket)
                if NACKED in outcome.dropped_for:  # an answer has no other way to tell it
                    raise Problem(Code.BUSY, "a receiver did not take the message: publish it again")
                number = outcome.message_id
                # A message that nobody gets has no number yet, and here each has one.
                numbers.append(str(number or context.core.effects.numbers.next(context.clock())))
                if at % SLICE == SLICE - 1:
                    context.loop_driver.run()
                    await asyncio.sleep(0)
        except Problem:
            context.loop_driver.wake()
            raise
        await context.loop_driver.settled()
        return numbers

    return route.made


def queues_of(queues: Queues, project: str, topic: str) -> list[str]:
    """The subscriptions of a topic of MQTT, by the names of their queues, sorted."""
    prefix = f"{project}."
    names = sorted(name for name in queues.names if name.startswith(prefix) and subscription_resource(name))
    return [name for name in names if queues.options(name).filters == (topic,)]


def _topic(name: str) -> Response:
    return answer({"name": topic_resource(name), "state": "ACTIVE"})


BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}
"""Google's own reference describes the bodies."""
