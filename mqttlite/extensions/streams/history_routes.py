"""`/api/v1/streams/{name}/history`: the numbers that a topic had, for a chart.

Invariant: it is shown to operators only, as payloads are.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from mqttlite.core.outbound.told_properties import time_text
from mqttlite.extensions.streams.position import Start, parse_position
from mqttlite.extensions.streams.routes import From, Number, finding
from mqttlite.extensions.streams.topic_history import history_of
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes

TopicOf = Annotated[str, Meta(max_length=65_535, description="The topic whose messages are looked at.")]
Field = Annotated[
    str,
    Meta(
        max_length=256,
        description="The field of a JSON payload that is the number, with dots between levels. Empty: the payload "
        "itself, or else its first field that is a number.",
    ),
]


class HistoryPoint(msgspec.Struct):
    """The numbers of a part of the time: `at` is when the first of them was published."""

    at: str
    mean: float
    low: float
    high: float
    count: int


class StreamHistory(msgspec.Struct):
    """The numbers of a topic."""

    topic: str
    field: str
    fields: list[str]
    """Fields of the latest message that are numbers."""
    since: str
    until: str
    """The time that was looked at: the latest 20,000 messages of the partitions may begin later than asked."""
    messages: int
    values: int
    points: list[HistoryPoint]


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    streams = context.streams
    assert streams is not None, "the routes belong to them"
    entries = context.read_entries
    route = Routes("/api/v1", "streams", served_on=OPERATORS, reach=Reach.THING)

    @route.get("/streams/{name}/history", Role.OPERATOR, "Show the numbers that a topic had")
    async def history(
        name: str, topic: TopicOf, since: From = "earliest", field: Field = "", partition: Number | None = None
    ) -> StreamHistory:
        """From a time on, in at most 400 points. Without a partition it looks at all, each with an equal share of
        the limits."""
        with finding():
            logs = streams.partitions(name) if partition is None else [streams.partition(name, partition)]
        try:
            position = parse_position(since)
        except ValueError as error:
            raise Problem(Code.INVALID_VALUE, f"since: {error}") from None
        if position.offsets or position.start is Start.LATEST:
            raise Problem(Code.INVALID_VALUE, "since: a time, or earliest")
        until_us = streams.now_us
        oldest_us = min((each.oldest_us for each in logs if each.oldest_us), default=until_us)
        since_us = position.time_us if position.start is Start.TIME else oldest_us
        found = await history_of(logs, topic.encode(), field, min(since_us, until_us), until_us, entries)
        return StreamHistory(
            topic=topic,
            field=found.field,
            fields=found.fields,
            since=time_text(found.since_us),
            until=time_text(found.until_us),
            messages=found.messages,
            values=found.values,
            points=[
                HistoryPoint(at=time_text(each.at_us), mean=each.mean, low=each.low, high=each.high, count=each.values)
                for each in found.points
            ],
        )

    return route.made
