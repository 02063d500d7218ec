"""Checks that the servers can keep what we acknowledge: three of them, new enough, and with `sync_interval: always`.

A server tells its version and limits to everybody who connects, before any login. Its `sync_interval` it tells only to
a user of the system account and at its monitoring port. By default it is two minutes, and the acknowledged records of
these minutes are gone if the machines lose power together. So a cluster whose `sync_interval` cannot be read is
refused, unless the operator says that it is right.

A server that does not answer now is not judged: a cluster that has lost one machine must be able to start. One that
answers, and does not tell its `sync_interval` yet, is asked again (`EngineUnavailable`).
"""

import asyncio
import urllib.request
from contextlib import suppress
from enum import Enum, auto
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult

import msgspec
from nats.aio.msg import Msg

from mqttlite.engine.addresses import shown
from mqttlite.engine.nats.connection import ApiError, connect
from mqttlite.engine.nats.servers import NatsOptions, split
from mqttlite.engine.nats.streams import COPIES
from mqttlite.engine.port import EngineUnavailable, EngineUnfit

OLDEST: Final = (2, 12, 3)
"""The release that the design asks for. `read` needs direct gets of batches, which are a little older."""

OLDEST_TEXT: Final = ".".join(map(str, OLDEST))

MIN_PAYLOAD_BYTES: Final = 1024 * 1024
"""The default of the servers. The largest record is smaller, see `MAX_BLOB_BYTES`."""

DEFAULT_PORT: Final = 4222
GREETING_S: Final = 2.0
MAX_GREETING_BYTES: Final = 64 * 1024


class Greeting(msgspec.Struct):
    """What a server says first."""

    server_id: str
    server_name: str = ""
    version: str = "0"
    max_payload: int = 0
    jetstream: bool = False
    cluster: str = ""


class _JetStreamConfig(msgspec.Struct, frozen=True):
    sync_always: bool = False


class _JetStream(msgspec.Struct, frozen=True):
    config: _JetStreamConfig = _JetStreamConfig()


class _Variables(msgspec.Struct):
    server_id: str
    jetstream: _JetStream = _JetStream()


class _Answer(msgspec.Struct):
    data: _Variables


async def check(options: NatsOptions) -> None:
    """Refuse servers that cannot keep what we acknowledge (`EngineUnfit`), or that do not answer."""
    check_addresses(options.servers)
    greetings = [each for each in await greetings_of(options.servers) if each is not None]
    if not greetings:
        raise EngineUnavailable(f"no NATS server answers at {', '.join(map(shown, options.servers))}")
    check_greetings(greetings)
    await _check_sync(options, greetings)


async def greetings_of(servers: tuple[str, ...]) -> list[Greeting | None]:
    """What each server tells everybody; None for one that does not answer. Raises `EngineUnfit` for another program."""
    return await asyncio.gather(*(_greeting(split(url)) for url in servers))


async def check_account(options: NatsOptions) -> None:
    """Refuse servers that refuse our login, or on which it may not use JetStream (`EngineUnfit`)."""
    connection = await connect(options, options.login)
    try:
        await connection.ask_api("INFO", {}, msgspec.Raw)
    except ApiError as error:
        raise EngineUnfit(f"JetStream is not for our account ({error}): turn it on for it") from None
    finally:
        await connection.close()


def check_addresses(servers: tuple[str, ...]) -> None:
    """Refuse addresses that cannot be three servers on three machines. On loopback one machine is enough: to try it."""
    for url in servers:
        parts = split(url)
        if parts.scheme not in ("nats", "tls") or not parts.hostname:
            raise EngineUnfit(
                f"{shown(url)!r} is no address of a NATS server: write nats://host:4222 or tls://host:4222"
            )
    places = {(parts.hostname, parts.port or DEFAULT_PORT) for parts in map(split, servers)}
    if len(places) < COPIES:
        raise EngineUnfit(
            f"a cluster needs {COPIES} NATS servers, and there are {len(places)} addresses: with two copies no machine "
            "can be lost without stopping the other; name a third server, which may run on a small machine"
        )
    hosts = {host for host, _ in places if host is not None}
    if len(hosts) < COPIES and not all(map(_is_loopback, hosts)):
        raise EngineUnfit(
            f"the {len(places)} NATS servers are on {len(hosts)} machines ({', '.join(sorted(hosts))}): one of them "
            "holds the majority of the copies, and its loss would stop everything; run one server on each of three"
        )


def check_greetings(greetings: list[Greeting]) -> None:
    """Refuse servers by what they tell everybody."""
    for each in greetings:
        if is_old(each):
            raise EngineUnfit(f"NATS server {each.server_name} is {each.version}: install {OLDEST_TEXT} or newer")
        if not each.jetstream:
            raise EngineUnfit(
                f"NATS server {each.server_name} runs without JetStream: add a jetstream block to its configuration"
            )
        if not each.cluster:
            raise EngineUnfit(
                f"NATS server {each.server_name} is alone: add a cluster block with routes to each configuration"
            )
        if each.max_payload < MIN_PAYLOAD_BYTES:
            raise EngineUnfit(
                f"NATS server {each.server_name} takes messages of up to {each.max_payload} bytes: set max_payload to "
                f"{MIN_PAYLOAD_BYTES} or more"
            )
    check_together(greetings)


def check_together(greetings: list[Greeting]) -> None:
    """Refuse servers that are not one cluster by what they tell everybody."""
    if len({each.server_id for each in greetings}) < len(greetings):
        raise EngineUnfit("two addresses lead to the same NATS server: name each server once")
    if len(clusters := {each.cluster for each in greetings}) > 1:
        raise EngineUnfit(
            f"the NATS servers are of different clusters ({', '.join(sorted(clusters))}): join them to one"
        )


async def _check_sync(options: NatsOptions, greetings: list[Greeting]) -> None:
    if options.is_sync_assured:
        return
    if options.system is None and not options.monitoring:
        raise EngineUnfit(
            "the NATS servers' sync_interval cannot be read by an ordinary account, and with its default a power cut "
            "loses what was acknowledged: set cluster.system_user and cluster.system_password, or cluster.monitoring; "
            "or write sync_interval: always into each server's jetstream block and set cluster.sync_assured = true"
        )
    found = await _ask_system(options, len(greetings)) if options.system is not None else []
    if len(found) < len(greetings):
        found += await _ask_monitoring(options.monitoring)
    by_id = {each.server_id: each for each in found}
    for each in greetings:
        if each.server_id in by_id and not by_id[each.server_id].jetstream.config.sync_always:
            raise EngineUnfit(
                f"NATS server {each.server_name} acknowledges what is not yet on its disk: write sync_interval: always "
                "into its jetstream block and restart it"
            )
    for each in greetings:
        if each.server_id not in by_id:  # it may have been busy, or have begun just now
            raise EngineUnavailable(
                f"NATS server {each.server_name} does not tell its sync_interval: give it cluster.system_user in its "
                "system account, or name its monitoring port in cluster.monitoring, or set cluster.sync_assured = true"
            )


class Look(Enum):
    """What a new connection to a server shows."""

    ANSWERS = auto()
    REFUSES = auto()
    """Its machine answers, and nobody listens there."""
    IS_SILENT = auto()


async def look_at(url: str) -> Look:
    """Connect to a server, and wait for its greeting."""
    parts = split(url)
    try:
        async with asyncio.timeout(GREETING_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or DEFAULT_PORT)
            try:
                return Look.ANSWERS if await reader.read(1) else Look.IS_SILENT
            finally:
                writer.close()
    except ConnectionRefusedError:
        return Look.REFUSES
    except (OSError, TimeoutError):
        return Look.IS_SILENT


async def _greeting(parts: SplitResult) -> Greeting | None:
    """The first line that a server sends; None if it does not answer."""
    try:
        async with asyncio.timeout(GREETING_S):
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port or DEFAULT_PORT, limit=MAX_GREETING_BYTES
            )
            try:
                line = await reader.readline()
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (TimeoutError, OSError, ValueError):
        return None
    try:
        return msgspec.json.decode(line.removeprefix(b"INFO "), type=Greeting)
    except msgspec.DecodeError as error:
        raise EngineUnfit(f"{parts.hostname}:{parts.port or DEFAULT_PORT} is no NATS server") from error


async def _ask_system(options: NatsOptions, number: int) -> list[_Variables]:
    """Ask all servers at once; each answers for itself."""
    assert options.system is not None
    found: list[_Variables] = []
    complete = asyncio.Event()

    def receive(message: Msg | None) -> None:
        if message is not None and message.data:
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(message.data, type=_Answer).data)
        if message is None or len(found) == number:
            complete.set()

    connection = await connect(options, options.system)
    try:
        with connection.receiving(receive) as reply, suppress(TimeoutError):
            async with asyncio.timeout(GREETING_S):
                await connection.send("$SYS.REQ.SERVER.PING.VARZ", b"", reply)
                await complete.wait()
    finally:
        await connection.close()
    return found


async def _ask_monitoring(urls: tuple[str, ...]) -> list[_Variables]:
    found = await asyncio.gather(*(asyncio.to_thread(_variables, url) for url in urls))
    return [each for each in found if each is not None]


def _variables(url: str) -> _Variables | None:
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/varz", timeout=GREETING_S) as answer:
            return msgspec.json.decode(answer.read(), type=_Variables)
    except (OSError, ValueError):
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_old(greeting: Greeting) -> bool:
    """Whether the server is older than any that mqttlite was tested with."""
    return _version(greeting.version) < OLDEST


def _version(text: str) -> tuple[int, ...]:
    numbers = text.partition("-")[0].split(".")
    return tuple(int(each) for each in numbers if each.isdecimal())
