"""Writes events as rows of `events`.

Invariant: a row is written when the event happens, with the data of its connection.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Final

from mqttlite.core.connect.connection import Connection
from mqttlite.core.limits import Limits
from mqttlite.core.reasons import CloseReason
from mqttlite.event_hub import Jailed, Link, Listener, OverloadStage
from mqttlite.extensions.dataset.intervals import Write
from mqttlite.extensions.dataset.pseudonyms import Pseudonyms
from mqttlite.extensions.dataset.tables import EventRow
from mqttlite.telemetry.wall import Wall
from mqttlite.wire.constants import VERSION_NAMES

_ENDS: Final = {CloseReason.TAKEN_OVER: "taken_over", CloseReason.KEEP_ALIVE_TIMEOUT: "keep_alive_timeout"}
"""Close reasons with their own kind of event."""

_OF_A_CLIENT: Final = (CloseReason.CLIENT_DISCONNECTED_WITH_WILL,)
"""Close reasons whose details are text from the client."""


class Events(Listener):
    """`clock` shows the broker's seconds."""

    def __init__(
        self,
        links: Mapping[int, Link],
        wall: Wall,
        names: Pseudonyms,
        write: Write,
        clock: Callable[[], float],
        broker_id: str,
        node: str | None,
    ) -> None:
        self._links: Final = links
        self._wall: Final = wall
        self._names: Final = names
        self._write: Final = write
        self._clock: Final = clock
        self._broker_id: Final = broker_id
        self._node: Final = node
        self._started: Final = clock()

    def started(self, limits: Limits, max_connections: int) -> None:
        """A run begins."""
        numbers = {name: int(limit) for name, limit in asdict(limits).items() if isinstance(limit, (int, float))}
        self._write_event(
            "broker_started", None, self._started, numbers={**numbers, "max_connections": max_connections}
        )

    def stopped(self) -> None:
        """The run ends cleanly."""
        now = self._clock()
        self._write_event("broker_stopped", None, now, duration_s=now - self._started)

    def clock_jumped(self, jumped_s: float) -> None:
        self._write_event("clock_jumped", None, self._clock(), duration_s=jumped_s)

    def on_stood_still(self, duration_s: float) -> None:
        self._write_event("stood_still", None, self._clock(), duration_s=duration_s)

    def on_connected(self, link: Link) -> None:
        connection = link.connection
        self._write_event(
            "connected",
            link,
            connection.connected_at,
            duration_s=connection.connected_at - connection.opened_at,
            numbers={
                "keep_alive_s": connection.keep_alive_s,
                "clean_start": int(connection.clean_start),
                "session_present": int(connection.session_present),
            },
        )

    def on_closed(self, link: Link) -> None:
        connection = link.connection
        self._write_event(
            _ENDS.get(connection.close_reason, "disconnected"),
            link,
            connection.ended_at,
            reason=str(connection.close_reason),
            reason_code=int(connection.reason_code),
            detail=self._detail(connection),
            duration_s=connection.ended_at - connection.connected_at,
        )

    def on_refused(self, link: Link) -> None:
        connection = link.connection
        self._write_event(
            "refused",
            link,
            connection.ended_at,
            reason=str(connection.close_reason),
            reason_code=int(connection.reason_code),
            detail=self._detail(connection) or "the client left before CONNECT",
        )

    def on_jailed(self, jailed: Jailed) -> None:
        self._write_event(
            "login_jailed",
            None,
            self._clock(),
            client_id=jailed.client_id or None,
            username=jailed.username,
            peer=jailed.peer,
            listener=jailed.listener,
            reason=jailed.what,
            duration_s=jailed.duration_s,
            numbers={"failures": jailed.failures},
        )

    def on_shed(self, link: Link, waiting_bytes: int, messages: int) -> None:
        self._write_event("hoarder_shed", link, self._clock(), numbers={"waiting_bytes": waiting_bytes})

    def on_overload(self, stage: OverloadStage) -> None:
        self._write_event(
            "overload_began" if stage.begins else "overload_ended",
            None,
            self._clock(),
            detail=stage.what,
            duration_s=None if stage.begins else stage.duration_s,
            numbers={"stage": stage.stage, "load_percent": round(100 * stage.load)},
        )

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        self._write_event(
            "subscribed",
            self._links.get(connection),
            self._clock(),
            topic_filter=self._names.topic(topic_filter.decode(errors="replace")),
            qos=qos if reason_code < 0x80 else None,
            reason_code=reason_code,
            numbers={"existing": int(existing)},
        )

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        name = self._names.topic(topic_filter.decode(errors="replace"))
        self._write_event("unsubscribed", self._links.get(connection), self._clock(), topic_filter=name)

    def on_blocked(self, connection: int) -> None:
        self._write_event("backpressure_began", self._links.get(connection), self._clock())

    def on_unblocked(self, connection: int, duration_s: float, waiting_bytes: int) -> None:
        self._write_event(
            "backpressure_ended",
            self._links.get(connection),
            self._clock(),
            duration_s=duration_s,
            numbers={"waiting_bytes": waiting_bytes},
        )

    def drop_burst(self, client_id: str, number: int, reason: str, messages: int, detail: str) -> None:
        """`number` is that of the client's connection, or 0."""
        self._write_event(
            "drop_burst",
            self._links.get(number),
            self._clock(),
            client_id=client_id,
            reason=reason,
            detail=detail or None,
            numbers={"messages": messages},
        )

    def _write_event(
        self,
        event: str,
        link: Link | None,
        at: float,
        *,
        client_id: str | None = None,
        username: str | None = None,
        peer: str | None = None,
        listener: str | None = None,
        reason: str | None = None,
        reason_code: int | None = None,
        detail: str | None = None,
        topic_filter: str | None = None,
        qos: int | None = None,
        duration_s: float | None = None,
        numbers: dict[str, int] | None = None,
    ) -> None:
        connection = None if link is None else link.connection
        if connection is not None:
            client_id, username = connection.client_id or None, connection.username
        if link is not None:
            peer, listener = link.address, link.listener
        self._write(
            "events",
            EventRow(
                broker_id=self._broker_id,
                at=self._wall.at(at),
                event=event,
                connection_id=None if connection is None else connection.number,
                client_id=self._names.client_id(client_id),
                username=self._names.username(username),
                listener=listener,
                transport=None if link is None else link.transport,
                peer=None if peer is None else self._names.address(peer),
                protocol_version=None if connection is None else VERSION_NAMES.get(connection.version),
                reason=reason,
                reason_code=reason_code,
                detail=detail,
                topic_filter=topic_filter,
                qos=qos,
                duration_s=duration_s,
                numbers=numbers or {},
                node=self._node,
            ),
        )

    def _detail(self, connection: Connection) -> str | None:
        if connection.close_reason in _OF_A_CLIENT:
            return self._names.quotation(connection.close_detail) or None
        return self._names.sentence(connection.close_detail) or None
