"""Connections that move from one worker to another: the socket itself goes, with what was read from it (SCM_RIGHTS).

A handoff is two lengths (4 bytes each), a description of the connection as JSON, and the bytes already read; the file
descriptor travels with its first byte. Invariant: a descriptor is closed here as soon as it is there, or cannot be.
"""

import asyncio
import errno
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from mqttlite.cluster.pieces import Pieces

MAX_WAITING: Final = 4_096
"""Connections that may wait for another worker to take them; one more is closed."""

RETRY_S: Final = 0.05
"""How long to wait where the kernel has too many descriptors under way, or no memory, before it is tried again."""

_BUSY: Final = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)

_READ_BYTES: Final = 262_144
_MAX_DESCRIPTORS: Final = 253
"""As many as the kernel passes at once."""

_HEAD: Final = struct.Struct("<II")

_log = logging.getLogger("mqttlite.cluster")


class Origin(msgspec.Struct, frozen=True):
    """What is known of a connection where it came in. `listener` is the number of its listener in the config.

    `traveller` is what `write_traveller` made of what is known of its client, if that was let in there.
    """

    listener: int
    address: str
    identity: str | None
    tls_version: str | None
    tls_cipher: str | None
    traveller: bytes | None = None


class Handoff:
    """The socket to one other worker; `on_arrival` is given what comes, without a socket if there was no room."""

    def __init__(self, sock: socket.socket, on_arrival: Callable[[socket.socket | None, Origin, bytes], None]) -> None:
        self._sock: Final = sock
        self._on_arrival: Final = on_arrival
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: Final[deque[tuple[socket.socket | None, bytes]]] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._pieces: Final = Pieces()
        self._descriptors: Final[deque[int | None]] = deque()
        """In the order of their handoffs; None for one that this process had no room for."""
        self._origins: Final = msgspec.json.Decoder(Origin)
        self._loop.add_reader(sock.fileno(), self._read)

    def send(self, sock: socket.socket, origin: Origin, data: bytes) -> bool:
        """Let a connection go, which is no longer ours afterwards. False: it is closed, for too many wait,
        or nobody is there any more to take it."""
        if len(self._waiting) >= MAX_WAITING:
            _log.warning(
                "%s: too many connections wait for another worker: closed",
                origin.address,
                extra={"fields": {"peer": origin.address}},
            )
            sock.close()
            return False
        described = msgspec.json.encode(origin)
        self._waiting.append((sock, _HEAD.pack(len(described), len(data)) + described + data))
        return len(self._waiting) > 1 or self._write()

    def close(self) -> None:
        """What has not arrived is closed."""
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        if self._retry is not None:
            self._retry.cancel()
        self._close_waiting()
        for descriptor in self._descriptors:
            if descriptor is not None:
                socket.close(descriptor)
        self._descriptors.clear()
        self._sock.close()

    def _close_waiting(self) -> None:
        for sock, _data in self._waiting:
            if sock is not None:
                sock.close()
        self._waiting.clear()

    def _write(self) -> bool:
        """Whether the other worker is there; it may be slow."""
        self._retry = None
        while self._waiting:
            sock, data = self._waiting[0]
            try:
                if sock is not None:
                    sent = socket.send_fds(self._sock, [data], [sock.fileno()])
                    sock.close()
                else:
                    sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._sock.fileno(), self._write)
                return True
            except OSError as error:
                if error.errno in _BUSY:
                    self._loop.remove_writer(self._sock.fileno())
                    self._retry = self._loop.call_later(RETRY_S, self._write)
                    return True
                self._close_waiting()  # the other worker is gone, and the broker about to end
                self._loop.remove_writer(self._sock.fileno())
                return False
            if sent < len(data):
                self._waiting[0] = None, data[sent:]
            else:
                self._waiting.popleft()
        self._loop.remove_writer(self._sock.fileno())
        return True

    def _read(self) -> None:
        while True:
            try:
                data, descriptors, flags, _address = socket.recv_fds(self._sock, _READ_BYTES, _MAX_DESCRIPTORS)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._loop.remove_reader(self._sock.fileno())
                return
            self._descriptors.extend(descriptors)
            if flags & socket.MSG_CTRUNC:  # the kernel hands over those of one handoff at a time
                self._descriptors.append(None)
            self._take(self._pieces.add(data))

    def _take(self, data: bytes) -> None:
        at = 0
        while len(data) - at >= _HEAD.size:
            described, read = _HEAD.unpack_from(data, at)
            body = at + _HEAD.size
            end = body + described + read
            if end > len(data):
                break
            origin = self._origins.decode(data[body : body + described])
            descriptor = self._descriptors.popleft()
            arrived = None if descriptor is None else socket.socket(fileno=descriptor)
            if arrived is None:
                _log.warning(
                    "%s: closed, for this process may open no more files",
                    origin.address,
                    extra={"fields": {"peer": origin.address}},
                )
            self._on_arrival(arrived, origin, data[body + described : end])
            at = end
        rest = data[at:]
        self._pieces.keep(rest, _HEAD.size + (sum(_HEAD.unpack_from(rest)) if len(rest) >= _HEAD.size else 0))
