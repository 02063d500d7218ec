"""The endpoint of a listener: a port on every address of a host, or a Unix socket in the file system.

`listeners` handles the connections. Invariant: a file is removed only if it is our own socket, or a socket without a
listening program.
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from typing import Any, Final

from mqttlite.net.link import format_address

BACKLOG: Final = 4_096
"""Connections that the kernel may queue while the loop is busy. The kernel may reduce it to its own limit."""

ACCEPTS_PER_ITERATION: Final = 8
"""Connections that uvloop accepts from one address in one iteration; asyncio's loop accepts all. uvloop accepts one per
listening server, so we open this many servers for an address: when many clients connect at once, most of their time is
waiting for an iteration."""

_PORT_ATTEMPTS: Final = 10
"""How many attempts to find a system-chosen port that is free on all addresses of a host."""


class CannotListen(OSError):
    """An address cannot be listened on. The text says which, why, and what to do."""


class AlreadyListening(CannotListen):
    """Another program listens on the Unix socket."""


class TcpEndpoint:
    """One port on every address of one host. With `reuses`, other programs of this user may listen on it, too."""

    def __init__(self, host: str, port: int, reuses: bool = False) -> None:
        self._host: Final = host
        self._reuses: Final = reuses
        self.port: int = port
        """The requested port; after it listens, the real one."""
        self.addresses: list[str] = []
        """The addresses that it listens on, as `address:port`. A host name may have an IPv4 and an IPv6 address."""
        self._servers: list[asyncio.Server] = []

    async def bind(self, name: str) -> list[socket.socket]:
        """Bind and listen. The caller accepts from the returned sockets. Raises `CannotListen`, which contains the
        listener's name."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            sockets = self._bind(list(dict.fromkeys((entry[0], entry[4]) for entry in found)))
        except OSError as error:
            raise cannot_listen(self._host, self.port, name, error) from None
        self.port = sockets[0].getsockname()[1]
        self.addresses = [format_address(each.getsockname()) for each in sockets]
        return sockets

    async def listen(self, name: str, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Bind and accept. Raises `CannotListen`, which contains the listener's name."""
        loop = asyncio.get_running_loop()
        for listening in await self.bind(name):
            repeated = 1 if isinstance(loop, asyncio.BaseEventLoop) else ACCEPTS_PER_ITERATION
            for each in (listening, *(listening.dup() for _ in range(repeated - 1))):
                self._servers.append(await loop.create_server(factory, sock=each, backlog=BACKLOG))

    def _bind(self, addresses: list[tuple[socket.AddressFamily, Any]]) -> list[socket.socket]:
        """A socket for each address, all on the same port, even if the system chooses it."""
        attempt = 0
        while True:
            attempt += 1
            port = self.port
            sockets: list[socket.socket] = []
            try:
                for family, (host, _port, *rest) in addresses:
                    # Without the protocol, asyncio's own loop leaves Nagle's algorithm on, which delays some answers by
                    # 40 ms.
                    sockets.append(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
                    _listen(sockets[-1], (host, port, *rest), self._reuses)
                    port = sockets[0].getsockname()[1]
                return sockets
            except OSError as error:
                for each in sockets:
                    each.close()
                if self.port or not port or attempt == _PORT_ATTEMPTS or error.errno != errno.EADDRINUSE:
                    raise

    def close(self) -> None:
        """Stop to accept. Harmless if it does not listen."""
        for server in self._servers:
            server.close()


def _listen(listening: socket.socket, address: tuple[Any, ...], reuses: bool) -> None:
    """Bind and listen. Raises `OSError`."""
    listening.setblocking(False)
    _bind(listening, address, reuses)
    listening.listen(BACKLOG)


def _bind(listening: socket.socket, address: tuple[Any, ...], reuses: bool) -> None:
    """Bind like asyncio's servers, which still refuses a second broker on the port, unless both reuse it. Raises
    `OSError`."""
    if os.name == "posix":
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuses:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if listening.family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.bind(address)


def try_port(host: str, port: int, reuses: bool) -> None:
    """Bind each address of a host, without listening, and let go. Raises `OSError`."""
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        with socket.socket(family, kind, protocol) as probe:
            _bind(probe, address, reuses)


def cannot_listen(host: str, port: int, name: str, error: OSError) -> CannotListen:
    """The error for a listener that cannot listen on its port."""
    where = format_address((host or "*", port))
    return CannotListen(f"cannot listen on {where} ({name}): {_explain(error, _PORT_WAYS_OUT)}")


class UnixEndpoint:
    """A Unix socket. The modes of its file and of the folders above decide who may connect."""

    port: Final = 0

    def __init__(self, path: str, mode: int) -> None:
        self._path: Final = path
        self._mode: Final = mode
        self.addresses: Final = [path]
        self._server: asyncio.Server | None = None
        self._file: tuple[int, int] | None = None
        """The device and inode of our own file."""

    async def bind(self, name: str) -> list[socket.socket]:
        """The same as of `TcpEndpoint`."""
        if not hasattr(socket, "AF_UNIX"):
            raise CannotListen(f"cannot listen on {self._path} ({name}): Python has no Unix sockets on this system")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind(listening)
            self._file = _identity(self._path)
            os.chmod(self._path, self._mode)  # no client can connect before `listen`
            listening.setblocking(False)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            self._remove()
            kind = AlreadyListening if isinstance(error, AlreadyListening) else CannotListen
            raise kind(f"cannot listen on {self._path} ({name}): {_explain(error, _FILE_WAYS_OUT)}") from None
        return [listening]

    async def listen(self, name: str, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """The same as of `TcpEndpoint`."""
        (listening,) = await self.bind(name)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(factory, sock=listening, backlog=BACKLOG)

    def _bind(self, listening: socket.socket) -> None:
        try:
            listening.bind(self._path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if not stat.S_ISSOCK(os.lstat(self._path).st_mode):
                raise CannotListen("there is a file which is no socket; choose another path, or remove it") from None
            if not _is_dead(self._path):
                raise AlreadyListening("another program listens on it; stop that, or choose another path") from None
            os.unlink(self._path)  # left by a killed broker
            listening.bind(self._path)

    def close(self) -> None:
        """Stop to accept, and remove the file. Harmless if it does not listen."""
        self._remove()
        if self._server is not None:
            self._server.close()

    def _remove(self) -> None:
        """Remove our file, unless it is gone or has been replaced."""
        try:
            if self._file is not None and self._file == _identity(self._path):
                os.unlink(self._path)
        except OSError:
            pass  # gone, or its folder is no longer writable
        self._file = None


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _is_dead(path: str) -> bool:
    """Whether no program listens on a socket file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except BlockingIOError:  # the queue is full, so a program listens
            return False
    return False


_PORT_WAYS_OUT: Final = {
    errno.EADDRINUSE: "the port is in use; stop the program that uses it, or choose another port",
    errno.EACCES: "not permitted; ports below 1024 are for privileged programs, choose a higher one",
    errno.EADDRNOTAVAIL: "this machine has no such address; 0.0.0.0 or :: is all that it has",
}
_FILE_WAYS_OUT: Final = {
    errno.ENOENT: "its folder does not exist",
    errno.EACCES: "not permitted; may this user write to its folder?",
}


def _explain(error: OSError, ways_out: dict[int, str]) -> str:
    """Why an address cannot be listened on, and what to do."""
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    return ways_out.get(error.errno or 0) or error.strerror or str(error)
