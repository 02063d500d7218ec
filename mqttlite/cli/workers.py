"""Several processes as one broker: started from one, which passes signals on and waits for them.

They end together: sessions live with one of them, and clients should not be left with half a broker.
"""

import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import msgspec

from mqttlite.cluster.membership import Membership, memberships, processors, why_not
from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.net.endpoints import CannotListen

_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def workers_of(config: Config) -> int:
    """How many workers a config asks for. Raises `ConfigError` where there cannot be several."""
    count = processors() if config.workers == "auto" else config.workers
    reason = why_not()
    if count > 1 and reason:
        if config.workers == "auto":
            return 1
        raise ConfigError(f"workers is {config.workers}: {reason}; it may be 1")
    return count


def run(config: Config, count: int, serve: Callable[[Config, Membership], int]) -> int:
    """Let `serve` run in so many processes; the exit code of the first that ends with another than 0.

    Raises `CannotListen` for a port that is in use.
    """
    with reserved(config) as config:
        places = memberships(count)
        children: dict[int, int] = {}
        for place in places:
            pid = os.fork()
            if pid == 0:
                for other in places:
                    if other is not place:
                        other.close()
                os._exit(_exit_code(serve, config, place))
            children[pid] = place.index
        for place in places:
            place.close()
        return _wait(children)


def _exit_code(serve: Callable[[Config, Membership], int], config: Config, place: Membership) -> int:
    try:
        return serve(config, place)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1


def _wait(children: dict[int, int]) -> int:
    """Wait for all of them, and let the others end with the first."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for pid in children:
            os.kill(pid, number)

    former = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    worst = 0
    while children:
        pid, status = os.wait()
        del children[pid]
        code = os.waitstatus_to_exitcode(status)
        worst = worst or (code if code >= 0 else 1)
        pass_on(signal.SIGTERM, None)
    for number, handler in former.items():
        signal.signal(number, handler)
    return worst


@contextmanager
def reserved(config: Config) -> Iterator[Config]:
    """The same config with the real ports where the system chooses them, which stay ours meanwhile."""
    sockets: list[socket.socket] = []
    try:
        listeners = tuple(_reserve(listener, sockets) for listener in config.listeners)
        yield msgspec.structs.replace(config, listeners=listeners)
    finally:
        for sock in sockets:
            sock.close()


def _reserve(listener: ListenerOptions, reserved: list[socket.socket]) -> ListenerOptions:
    if listener.path is not None:
        return listener
    found = socket.getaddrinfo(listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    port = listener.port
    for family, kind, number, _name, address in dict.fromkeys(found):
        where = (str(address[0]), port, *address[2:])
        if port:
            _probe(family, kind, number, where, listener.title())
        sock = socket.socket(family, kind, number)
        reserved.append(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
        port = sock.getsockname()[1]
    return msgspec.structs.replace(listener, port=port)


def _probe(family: int, kind: int, number: int, where: tuple[object, ...], title: str) -> None:
    """Raises `CannotListen` where somebody listens already, who would share the port with us without knowing."""
    with socket.socket(family, kind, number) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            sock.bind(where)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                detail = "the port is in use; stop the program that uses it, or choose another port"
                raise CannotListen(f"cannot listen on {where[0]}:{where[1]} ({title}): {detail}") from None
