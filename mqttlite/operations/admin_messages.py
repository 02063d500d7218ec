"""An operator's actions on retained and delayed messages: list, show, remove, cancel.

Invariant: a call works in slices that do not block the loop, and its answer has a bounded size.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.message import Message
from mqttlite.operations.admin_entries import DelayedEntry, Page, Removal, RetainedEntry, RetainedMessage
from mqttlite.topics.names import check_filter

SLICE: Final = 500
"""Sessions or retained messages to examine in one loop iteration: about half a millisecond."""

REMOVE_SLICE: Final = 20
"""Retained messages to remove in one loop iteration. Subscribers get an empty message for each."""

MAX_PAGE: Final = 1_000
"""Entries of one page: some hundred kilobytes of JSON."""

MAX_REMOVED: Final = 10_000
"""The most retained messages that one call removes: some seconds next to other work."""


class MessageAdmin:
    """The part of `Admin` for messages. `run` carries out the effects of the core, `now` returns the broker's seconds
    and `wall` converts them to UTC."""

    def __init__(
        self,
        core: Broker,
        run: Callable[[], None],
        now: Callable[[], float],
        wall: Callable[[float], datetime],
    ) -> None:
        self._core: Final = core
        self._run: Final = run
        self._now: Final = now
        self._wall: Final = wall

    # ------------------------------------------------------------------ retained messages

    async def retained(self, topic_filter: str, cursor: str = "", limit: int = 100) -> Page[RetainedEntry]:
        """Up to `limit` retained messages that a filter matches, at most `MAX_PAGE`, from the cursor on.

        Raises `TopicFilterInvalid`.
        """
        found: dict[str, Message] = {}

        def slices() -> Iterable[list[str]]:
            search = self._core.router.retained.search(_checked(topic_filter))
            while len(search):
                some = {message.topic.decode(): message for message in search.take(SLICE)}
                found.update(some)
                yield list(some)

        names, next_cursor = await _lowest(slices(), cursor, limit)
        entries = [_retained(found[name]) for name in names]
        return Page(entries, next_cursor)

    def retained_message(self, topic: str) -> RetainedMessage | None:
        """The retained message of a topic."""
        message = self._core.router.retained.get(topic.encode())
        if message is None or message.expired(self._now()):
            return None
        return RetainedMessage(
            entry=_retained(message),
            payload=message.payload,
            properties=message.properties,
            expires_at=self._wall(message.expires_at) if message.expires_at else None,
        )

    async def remove_retained(self, topic_filter: str, *, dry_run: bool) -> Removal:
        """Remove up to `MAX_REMOVED` retained messages that a filter matches. A dry run only counts them.

        Subscribers get an empty message, as when a client removes them. Raises `TopicFilterInvalid`.
        """
        search = self._core.router.retained.search(_checked(topic_filter))
        removed = 0
        while len(search):
            for message in search.take(min(REMOVE_SLICE, MAX_REMOVED - removed)):
                removed += 1
                if not dry_run:
                    self._core.publish(message.topic, b"", 0, True, self._now())
            if not dry_run:
                self._run()
            if removed >= MAX_REMOVED:
                break
            await asyncio.sleep(0)
        return Removal(removed, not len(search))

    # ------------------------------------------------------------------ delayed messages

    def delayed(self, cursor: str = "", limit: int = 100) -> Page[DelayedEntry]:
        """Up to `limit` delayed messages in the order of their numbers, at most `MAX_PAGE`, from the cursor on.

        Raises `ValueError` for a cursor that is no number.
        """
        limit = max(1, min(limit, MAX_PAGE))
        found = self._core.delayed.page(int(cursor or 0), limit + 1)
        entries = [
            DelayedEntry(
                number=each.number,
                message_id=str(each.message.number) if each.message.number else None,
                published_at=published_at(each.message),
                topic=each.message.topic.decode(),
                due_at=self._wall(each.at),
                qos=each.message.qos,
                payload_bytes=len(each.message.payload),
            )
            for each in found[:limit]
        ]
        return Page(entries, str(found[limit].number) if len(found) > limit else "")

    def cancel_delayed(self, number: int) -> bool:
        """Drop a delayed message, with the reason `purged`. False if the number is unknown or the message is due."""
        cancelled = self._core.cancel_delayed(number, self._now())
        self._run()
        return cancelled


def _checked(topic_filter: str) -> bytes:
    """Raises `TopicFilterInvalid`."""
    checked = topic_filter.encode()
    check_filter(checked)
    return checked


async def _lowest(slices: Iterable[list[str]], cursor: str, limit: int) -> tuple[list[str], str]:
    """The lowest names that are at least the cursor, and the cursor of the next page."""
    limit = max(1, min(limit, MAX_PAGE))
    lowest: list[str] = []
    for names in slices:
        lowest = heapq.nsmallest(limit + 1, [*lowest, *(name for name in names if name >= cursor)])
        await asyncio.sleep(0)
    return lowest[:limit], lowest[limit] if len(lowest) > limit else ""


def published_at(message: Message) -> datetime | None:
    """When the broker accepted the message, from its number; None if it has none."""
    return datetime.fromtimestamp(message.number / 1e6, UTC) if message.number else None


def _retained(message: Message) -> RetainedEntry:
    return RetainedEntry(
        topic=message.topic.decode(),
        message_id=str(message.number) if message.number else None,
        published_at=published_at(message),
        qos=message.qos,
        payload_bytes=len(message.payload),
    )
