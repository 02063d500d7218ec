"""Several processes as one broker: started from one, which passes signals on and waits for them.

They end together: sessions live with one of them, and clients should not be left with half a broker.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import Any, Final

import msgspec

from mqttlite.cluster.membership import Membership, memberships, why_not
from mqttlite.cluster.processors import processors
from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.net.endpoints import cannot_listen

_LEAVE: Final = getattr(signal, "SIGUSR1", None)
"""Windows, which has no workers either, has no such signal."""

_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, *([] if _LEAVE is None else [_LEAVE]))


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
        ours, lifeline = socket.socketpair()
        children: dict[int, int] = {}
        for place in places:
            pid = os.fork()
            if pid == 0:
                ours.close()
                for other in places:
                    if other is not place:
                        other.close()
                os._exit(_exit_code(serve, config, replace(place, lifeline=lifeline)))
            children[pid] = place.index
        lifeline.close()
        for place in places:
            place.close()
        with ours:  # who is killed with no time to end the others at least lets go of this
            return _wait(children)


def _exit_code(serve: Callable[[Config, Membership], int], config: Config, place: Membership) -> int:
    try:
        return serve(config, place)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1


def _wait(children: dict[int, int]) -> int:
    """Wait for all of them, and let the others end with the first, but for those that send their clients away."""
    told: set[int] = set()

    def pass_on(number: int, _frame: FrameType | None) -> None:
        told.add(number)
        for pid in list(children):
            with suppress(ProcessLookupError):  # we are just about to note its end
                os.kill(pid, number)

    former = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    worst = 0
    while children:
        pid, status = os.wait()
        del children[pid]
        code = os.waitstatus_to_exitcode(status)
        if -code in told:  # before it had begun to listen to signals
            code = 0
        worst = worst or (code if code >= 0 else 1)
        if code != 0 or _LEAVE not in told:
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
    port = listener.port
    try:
        for family, kind, number, _name, address in _addresses(listener):
            where = (str(address[0]), port, *address[2:])
            if port:
                with _bound(family, kind, number, where):
                    pass  # else somebody listens already, who would share the port with us without knowing
            sock = _bound(family, kind, number, where, socket.SO_REUSEPORT)
            reserved.append(sock)
            port = sock.getsockname()[1]
    except OSError as error:
        raise cannot_listen(listener.host, listener.port, listener.title(), error) from None
    return msgspec.structs.replace(listener, port=port)


def _addresses(listener: ListenerOptions) -> list[Any]:
    found = socket.getaddrinfo(listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))


def _bound(family: int, kind: int, number: int, where: tuple[object, ...], *options: int) -> socket.socket:
    sock = socket.socket(family, kind, number)
    try:
        for option in (socket.SO_REUSEADDR, *options):
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
    except BaseException:
        sock.close()
        raise
    return sock
