"""Protects against server-side request forgery: pushes only go to allowed endpoints.

A URL is checked when it is configured, for a helpful error. The check that protects is the one at each connect: of all
addresses of the name, and again of the address of the socket. Invariant: no socket is opened to an address that is not
allowed.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

from mqttlite.extensions.push.options import PushOptions
from mqttlite.extensions.queues.errors import PushRefused
from mqttlite.extensions.queues.push_addresses import METADATA, parse_address, why_denied
from mqttlite.extensions.queues.push_target import PushTarget, Target

LOCAL_NAMES: Final = frozenset(
    {"corp", "home", "internal", "intranet", "invalid", "lan", "local", "localdomain", "localhost", "onion", "private"}
)
"""The last labels of names that are only valid within one network, or never."""

LOWEST_PORT: Final = 1_024
"""Ports below this belong to other services, except those of HTTP."""

HTTP_PORTS: Final = frozenset({80, 443})

EXTRA_MISSING: Final = "aiohttp is missing, which push needs: pip install 'mqttlite[push]'"

T = TypeVar("T")

Resolve = Callable[[str, int], list[tuple[Any, ...]]]
"""Like `getaddrinfo`, blocking."""

IsOwn = Callable[[str], bool]

MAX_RESOLVING: Final = 32
"""Concurrent name look-ups. A name whose servers do not answer blocks a thread for some seconds."""


class AddressDenied(OSError):
    """A name has an address that is not allowed."""


class Guard:
    """One for each broker. `resolve` returns the addresses of a name, `is_own` whether an address is this machine's."""

    def __init__(self, options: PushOptions, resolve: Resolve | None = None, is_own: IsOwn | None = None) -> None:
        self._hosts: Final = frozenset(options.allowed_hosts)
        self._networks: Final = options.networks
        self._resolve: Final = _getaddrinfo if resolve is None else resolve
        self._is_own: Final = _is_own if is_own is None else is_own
        self._free: Final = asyncio.Semaphore(MAX_RESOLVING)

    def check(self, push: PushTarget) -> None:
        """Raises `PushRefused` for a URL that is never allowed."""
        target = push.target
        if self.is_named(target):
            if target.address is not None:
                self._check_literal(target)
            return
        if target.scheme != "https":
            raise _refused(target, "http:// is allowed to hosts in push.allowed_hosts alone; write https://")
        if target.port < LOWEST_PORT and target.port not in HTTP_PORTS:
            raise _refused(
                target, f"the port {target.port} is another service's: 80, 443 and those from 1024 on may be"
            )
        if target.address is not None:
            self._check_literal(target)
            return
        labels = target.host.split(".")
        if len(labels) == 1 or labels[-1] in LOCAL_NAMES or labels[-2:] == ["home", "arpa"]:
            raise _refused(target, f"{target.host} is a name of a private network: push.allowed_hosts can allow it")

    def is_named(self, target: Target) -> bool:
        """Whether the operator allows this host by its name."""
        return target.host in self._hosts

    def why_denied(self, target: Target, address_text: str) -> str:
        """Why no request for a target may go to an address; empty if it may."""
        address = parse_address(address_text)
        if address is None:
            return f"{address_text[:60]} is no address"
        is_named = self.is_named(target)
        why = why_denied(address, self._networks, is_named)
        if why or is_named or any(address in network for network in self._networks):
            return why
        return f"{address_text} is an address of this machine" if self._is_own(address_text) else ""

    def open_socket(self, target: Target, address_info: Sequence[Any]) -> socket.socket:
        """Open a socket for a connection to exactly this address. Raises `AddressDenied`."""
        family, kind, protocol, _, where = address_info
        why = self.why_denied(target, str(where[0]))
        if why:
            raise AddressDenied(f"{target.host}: {why}")
        return socket.socket(family=family, type=kind, proto=protocol)

    async def addresses(self, target: Target, port: int, family: int) -> list[dict[str, Any]]:
        """The addresses of a target's name, as an aiohttp resolver gives them. Raises `OSError`.

        A name with one denied address is denied completely, so that its owner cannot try out addresses.
        """
        await self._free.acquire()
        found = await _in_thread(lambda: self._resolve(target.host, port), self._free.release)
        known: list[dict[str, Any]] = []
        for of_family, _, protocol, _, where in found:
            text = str(where[0])
            why = self.why_denied(target, text)
            if why:
                raise AddressDenied(f"{target.host}: {why}")
            if family in (socket.AF_UNSPEC, of_family):
                known.append(
                    {
                        "hostname": target.host,
                        "host": text,
                        "port": where[1],
                        "family": of_family,
                        "proto": protocol,
                        "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                    }
                )
        if not known:
            raise OSError(f"{target.host} has no address")
        return known

    def _check_literal(self, target: Target) -> None:
        why = self.why_denied(target, str(target.address))
        if why:
            is_final = self.is_named(target) or target.address in METADATA
            hint = "" if is_final else "; push.allowed_hosts and push.allowed_networks can allow private ones"
            raise _refused(target, why + hint)


def check_push(guard: Guard, target: PushTarget) -> None:
    """Raises `PushRefused` for a target that is not allowed or not possible."""
    guard.check(target)
    if find_spec("aiohttp") is None:
        raise PushRefused(EXTRA_MISSING)


def _refused(target: Target, why: str) -> PushRefused:
    return PushRefused(f"push.url is {target.origin!r}: {why}")


def _getaddrinfo(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _is_own(address: str) -> bool:
    """Whether an address is this machine's: then the source address of a route to it is the same. Sends nothing."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
        except OSError:  # there is no route
            return False


async def _in_thread(call: Callable[[], T], on_end: Callable[[], None]) -> T:
    """Run a blocking call in a daemon thread, which does not delay the end of the program like a pool's threads.

    `on_end` is called when the thread ends, even if the caller was cancelled.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(value: T | None, error: Exception | None) -> None:
        on_end()
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast(T, value))

    def run() -> None:
        value, failure = None, None
        try:
            value = call()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, value, failure)

    threading.Thread(target=run, name="mqttlite-push-names", daemon=True).start()
    return await result
