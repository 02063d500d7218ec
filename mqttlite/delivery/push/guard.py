"""Keeps pushed messages from what is no endpoint of the Internet (server-side request forgery).

A URL is checked when it is given, so that the answer says what is wrong with it. What counts is the check of the
address at each connect: of each address that a name has, and again of the one to which a socket is opened. Invariant:
no socket of an endpoint is opened to an address that is not allowed.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

from mqttlite.delivery.push.addresses import METADATA, parse_address, why_denied
from mqttlite.delivery.push.options import PushOptions
from mqttlite.delivery.push.target import PushTarget, Target

LOCAL_NAMES: Final = frozenset(
    {"corp", "home", "internal", "intranet", "invalid", "lan", "local", "localdomain", "localhost", "onion", "private"}
)
"""The last labels of names that mean something in one network alone, or nothing."""

LOWEST_PORT: Final = 1_024
"""Ports below it are other services', but for those of HTTP."""

HTTP_PORTS: Final = frozenset({80, 443})

EXTRA_MISSING: Final = "aiohttp is missing, which push needs: pip install 'mqttlite[push]'"

T = TypeVar("T")

Resolve = Callable[[str, int], list[tuple[Any, ...]]]
"""As `getaddrinfo`: blocking."""

IsOwn = Callable[[str], bool]

MAX_RESOLVING: Final = 32
"""Names that are looked up at a time: one whose servers do not answer takes a thread for some seconds."""


class PushRefused(ValueError):
    """A target that is not allowed, or cannot be served; the text says why and what to do."""


class AddressDenied(OSError):
    """A name has an address to which no request may go."""


class Guard:
    """One for each broker. `resolve` gives the addresses of a name, `is_own` says which are of this machine."""

    def __init__(self, options: PushOptions, resolve: Resolve | None = None, is_own: IsOwn | None = None) -> None:
        self._hosts: Final = frozenset(options.allowed_hosts)
        self._networks: Final = options.networks
        self._resolve: Final = _getaddrinfo if resolve is None else resolve
        self._is_own: Final = _is_own if is_own is None else is_own
        self._free: Final = asyncio.Semaphore(MAX_RESOLVING)

    def check(self, push: PushTarget) -> None:
        """Raises `PushRefused` for a URL that is not allowed as it is written."""
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
        """Why no request to a target may go to an address; empty where it may."""
        address = parse_address(address_text)
        if address is None:
            return f"{address_text[:60]} is no address"
        is_named = self.is_named(target)
        why = why_denied(address, self._networks, is_named)
        if why or is_named or any(address in network for network in self._networks):
            return why
        return f"{address_text} is an address of this machine" if self._is_own(address_text) else ""

    def open_socket(self, target: Target, address_info: Sequence[Any]) -> socket.socket:
        """A socket for a connection to that very address. Raises `AddressDenied`."""
        family, kind, protocol, _, where = address_info
        why = self.why_denied(target, str(where[0]))
        if why:
            raise AddressDenied(f"{target.host}: {why}")
        return socket.socket(family=family, type=kind, proto=protocol)

    async def addresses(self, target: Target, port: int, family: int) -> list[dict[str, Any]]:
        """The addresses of a target's name, as an aiohttp resolver gives them. Raises `OSError`.

        A name with one address that is denied is denied: it is not for its owner to try which of them gets through.
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
    """Raises `PushRefused` for a target that is not allowed, or cannot be served."""
    guard.check(target)
    if find_spec("aiohttp") is None:
        raise PushRefused(EXTRA_MISSING)


def _refused(target: Target, why: str) -> PushRefused:
    return PushRefused(f"push.url is {target.origin!r}: {why}")


def _getaddrinfo(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _is_own(address: str) -> bool:
    """Whether an address is of this machine: then it is the source of what is sent there. Nothing is sent."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
        except OSError:  # no way leads there
            return False


async def _in_thread(call: Callable[[], T], on_end: Callable[[], None]) -> T:
    """The result of a blocking call, on a thread that does not hold up the end of the program as those of a pool do.

    `on_end` is called when the thread ends, also where nobody waits for the result any more.
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
