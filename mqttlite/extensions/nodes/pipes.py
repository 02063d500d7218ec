"""Pipes: bytes of MQTT packets on their way between two nodes, for one client each.

A client that has connected to one node and has its session at another one has a `ClientEnd`, the protocol of its
socket, and a `SessionEnd`, the transport of a link like that of any client. Those of clients that consume from queues
and streams of other nodes are in `far_clients`. Invariant: neither end sends more than `WINDOW_BYTES` that the other
has not taken.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from mqttlite.extensions.nodes.blobs import Bytes, End, Note, Room
from mqttlite.net.link import Link

WINDOW_BYTES: Final = 65_536
"""How many bytes of a pipe may be under way. More wait in the client's socket, or in the outbox of its session."""

PIECE_BYTES: Final = 32_768
"""The most bytes in one note."""

Put = Callable[[Note], None]


class Flow:
    """The bytes of one end. `on_full` is told when the other end has as much as it may, and when it has room again."""

    def __init__(self, pipe: int, put: Put, on_full: Callable[[bool], None]) -> None:
        self.pipe: Final = pipe
        self.put: Final = put
        self.under_way_bytes: int = 0
        self._on_full: Final = on_full
        self._is_full = False
        self._is_held = False
        """Whether this end takes no more bytes."""
        self._untold_bytes = 0
        """Bytes that have come, and of which the other end does not know that they were taken."""

    def send(self, data: bytes) -> None:
        """Pass bytes to the other end."""
        for at in range(0, len(data), PIECE_BYTES):
            self.put(Bytes(self.pipe, data[at : at + PIECE_BYTES]))
        self.under_way_bytes += len(data)
        if self.under_way_bytes > WINDOW_BYTES and not self._is_full:
            self._is_full = True
            self._on_full(True)

    def on_room(self, size: int) -> None:
        """The other end has taken bytes."""
        self.under_way_bytes -= size
        if self._is_full and self.under_way_bytes <= WINDOW_BYTES // 4:
            self._is_full = False
            self._on_full(False)

    def took(self, size: int) -> None:
        """This end was given bytes."""
        self._untold_bytes += size
        self._tell()

    def hold(self, is_held: bool) -> None:
        """This end takes no more bytes, or takes them again."""
        self._is_held = is_held
        self._tell()

    def _tell(self) -> None:
        if self._untold_bytes >= WINDOW_BYTES // 8 and not self._is_held:
            self.put(Room(self.pipe, self._untold_bytes))
            self._untold_bytes = 0


class PipeEnd(Protocol):
    """One end of a pipe."""

    @property
    def flow(self) -> Flow: ...
    def on_bytes(self, data: bytes) -> None:
        """Bytes of the other end."""
        ...

    def on_end(self) -> None:
        """The other end has ended, or is out of reach."""
        ...


class Pipes:
    """All pipes of this node, `me`, by the node at the other end."""

    def __init__(self, me: str) -> None:
        self._me: Final = me
        self._ends: Final[dict[tuple[str, int], PipeEnd]] = {}
        self._latest = 0

    def draw(self, node: str) -> int:
        """The number of a new pipe."""
        self._latest += 2
        return self._latest + (self._me > node)

    def add(self, node: str, pipe: int, end: PipeEnd) -> None:
        """A pipe begins."""
        self._ends[node, pipe] = end

    def get(self, node: str, pipe: int) -> PipeEnd | None:
        """The end of a pipe here, if it has not ended."""
        return self._ends.get((node, pipe))

    def remove(self, node: str, pipe: int) -> bool:
        """A pipe has ended at this end. Return whether it was there."""
        return self._ends.pop((node, pipe), None) is not None

    def close_clients(self) -> None:
        """Close the sockets of clients whose sessions are at other nodes."""
        for each in [each for each in self._ends.values() if isinstance(each, ClientEnd)]:
            each.close()

    def on_note(self, node: str, note: Bytes | Room | End) -> None:
        """What another node says about a pipe, which may have ended at this end."""
        end = self._ends.get((node, note.pipe))
        if end is None:
            return
        if isinstance(note, Bytes):
            end.on_bytes(note.data)
        elif isinstance(note, Room):
            end.flow.on_room(note.size)
        else:
            end.on_end()

    def on_away(self, node: str) -> None:
        """A node is not connected any more."""
        for key in [key for key in self._ends if key[0] == node]:
            self._ends[key].on_end()


class ClientEnd(asyncio.Protocol):
    """Where the client is. `on_over` is called once, at the end."""

    def __init__(self, pipe: int, put: Put, link: Link, on_over: Callable[[], None]) -> None:
        self.flow: Final = Flow(pipe, put, self._on_full)
        self._link: Final = link
        self._on_over: Final = on_over
        self._transport: Final[asyncio.Transport] = link.pass_on(self)

    def data_received(self, data: bytes) -> None:
        self.flow.send(data)

    def pause_writing(self) -> None:
        self.flow.hold(True)

    def resume_writing(self) -> None:
        self.flow.hold(False)

    def connection_lost(self, error: Exception | None) -> None:
        self.flow.put(End(self.flow.pipe))
        self._on_over()
        self._link.connection_lost(error)

    def close(self) -> None:
        """Close the client's socket."""
        self._transport.close()

    def on_bytes(self, data: bytes) -> None:
        """As `PipeEnd`."""
        self._transport.write(data)
        self.flow.took(len(data))

    def on_end(self) -> None:
        """As `PipeEnd`."""
        self._on_over()
        self._link.take_back()

    def _on_full(self, is_full: bool) -> None:
        if self._transport.is_closing():
            return
        if is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class SessionEnd(asyncio.Transport):
    """Where the session is. `on_over` is called once, at the end."""

    def __init__(self, pipe: int, put: Put, on_over: Callable[[], None]) -> None:
        super().__init__()
        self.flow: Final = Flow(pipe, put, self._on_full)
        self._on_over: Final = on_over
        self._link: Link
        self._is_over = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._link = cast(Link, protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_over:
            self.flow.send(bytes(data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._is_over:
            self.flow.put(End(self.flow.pipe))
            self.on_end()

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_over

    def pause_reading(self) -> None:
        self.flow.hold(True)

    def resume_reading(self) -> None:
        self.flow.hold(False)

    def get_write_buffer_size(self) -> int:
        return 0 if self._is_over else self.flow.under_way_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The window is the limit."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def on_bytes(self, data: bytes) -> None:
        """As `PipeEnd`."""
        self.flow.took(len(data))
        self._link.data_received(data)

    def on_end(self) -> None:
        """As `PipeEnd`."""
        self._is_over = True
        self._on_over()
        asyncio.get_running_loop().call_soon(self._link.connection_lost, None)

    def _on_full(self, is_full: bool) -> None:
        if is_full:
            self._link.pause_writing()
        else:
            self._link.resume_writing()
