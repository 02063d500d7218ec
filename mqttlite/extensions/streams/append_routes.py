"""`POST /api/v1/streams/{name}/messages`: append messages of an archive to a stream, with the topics they had.

Invariant: the messages of a request are appended in their order, up to the first one that is refused, and each at most
once as long as the stream remembers its `dedup_id`.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from mqttlite.core.message import Message
from mqttlite.extensions.dedup import DEDUP_ID
from mqttlite.extensions.streams.limits import MAX_APPENDED
from mqttlite.extensions.streams.once import ACKS
from mqttlite.extensions.streams.routes import finding
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.publishing import checked
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.topics.names import check_name
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.properties import Properties


class ArchivedMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message as an archive has it."""

    topic: str
    payload: bytes
    """In base64."""
    dedup_id: Annotated[str, Meta(min_length=1, max_length=256)]
    """The stream appends one message with it."""
    partition: Annotated[int, Meta(ge=0)] = 0
    """Where it was: a message without a key goes there again, if there are as many partitions."""
    content_type: str | None = None
    user_properties: list[tuple[str, str]] = []


class ArchivedMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to append, in order."""

    messages: Annotated[list[ArchivedMessage], Meta(max_length=MAX_APPENDED)]


class Appended(msgspec.Struct):
    """What became of the messages of a request."""

    appended: int
    known: int
    """They were there already."""
    refused: str
    """Why the message after these is not taken; those behind it were not looked at. Empty: all were taken."""
    end: int
    """How many offsets the stream has given, in all partitions together."""


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    streams = context.streams
    assert streams is not None, "the routes belong to them"
    commit = context.commit
    route = Routes("/api/v1", "streams", served_on=OPERATORS, reach=Reach.THING)

    @route.post("/streams/{name}/messages", Role.ADMIN, "Append messages of an archive to a stream")
    async def append(name: str, body: ArchivedMessages) -> Appended:
        """In order, with the topics they had; other subscribers of these do not get them. The answer comes when they
        are on disk. The first one that the stream refuses ends the request."""
        messages = [(each.partition, _message_of(at, each)) for at, each in enumerate(body.messages)]
        answer = Appended(appended=0, known=0, refused="", end=0)
        with finding():
            for partition, message in messages:
                outcome = streams.append(name, partition, message)
                answer.refused = outcome.refusal
                if answer.refused:
                    break
                answer.known += outcome.is_known
                answer.appended += not outcome.is_known
            answer.end = sum(each.end for each in streams.partitions(name))
        await commit()
        return answer

    return route.made


def _message_of(at: int, given: ArchivedMessage) -> Message:
    """The message, whose own `dedup-id` stands behind ours; its acks were taken when it was published. Raises
    `Problem`."""
    try:
        topic = given.topic.encode()
        check_name(topic)
    except (TopicNameInvalid, UnicodeEncodeError) as error:
        raise Problem(Code.INVALID_TOPIC, f"messages[{at}].topic: {error}") from None
    kept = [(name, value) for name, value in given.user_properties if name != ACKS]
    properties = Properties(content_type=given.content_type, user_properties=[(DEDUP_ID, given.dedup_id), *kept])
    return Message(topic, given.payload, 1, False, checked(properties))
