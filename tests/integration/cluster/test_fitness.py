"""Whether acknowledged records are on the disk is read from real servers; a cluster where they are not is refused."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from mqttlite.engine.nats.fitness import check
from mqttlite.engine.nats.servers import NatsLogin, NatsOptions
from mqttlite.engine.port import EngineUnavailable, EngineUnfit
from tests.support.nats_clusters import options_of
from tests.support.nats_servers import READY_S, NatsServers, free_ports

pytestmark = pytest.mark.slow

ACCOUNTS = """
accounts {
    MQTT: { jetstream: enabled, users: [ { user: broker, password: b } ] }
    SYS: { users: [ { user: admin, password: a } ] }
}
system_account: SYS
"""
ADMIN = NatsLogin("admin", "a")


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    yield from running(NatsServers(tmp_path_factory.mktemp("safe"), more=ACCOUNTS))


@pytest.fixture(scope="module")
def unsafe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    yield from running(NatsServers(tmp_path_factory.mktemp("unsafe"), more=ACCOUNTS, sync="2m"))


def running(servers: NatsServers) -> Iterator[NatsServers]:
    try:
        servers.wait_ready()
        yield servers
    finally:
        servers.close()


def by_system(servers: NatsServers) -> NatsOptions:
    return replace(options_of(servers), monitoring=(), system=ADMIN)


async def test_servers_that_sync_always_are_taken(safe: NatsServers) -> None:
    for options in (options_of(safe), by_system(safe)):
        await taken(options)


async def taken(options: NatsOptions) -> None:
    """Check servers that may have begun just now, and so be too busy to tell."""
    async with asyncio.timeout(READY_S):
        while True:
            try:
                return await check(options)
            except EngineUnavailable:
                await asyncio.sleep(0.2)


async def test_servers_that_sync_later_are_refused(unsafe: NatsServers) -> None:
    for options in (options_of(unsafe), by_system(unsafe)):
        with pytest.raises(EngineUnfit, match="write sync_interval: always into its jetstream block and restart it"):
            await check(options)


async def test_servers_that_do_not_tell_are_refused_unless_the_operator_is_sure(unsafe: NatsServers) -> None:
    silent = replace(options_of(unsafe), monitoring=())
    with pytest.raises(EngineUnfit, match=r"cannot be read by an ordinary account.*cluster\.sync_assured = true"):
        await check(silent)
    await check(replace(silent, is_sync_assured=True))


async def test_each_server_must_tell(safe: NatsServers) -> None:
    options = options_of(safe)
    with pytest.raises(EngineUnavailable, match="n2 does not tell its sync_interval"):
        await check(replace(options, monitoring=options.monitoring[:2]))
    with pytest.raises(EngineUnavailable, match="does not tell its sync_interval"):
        await check(replace(options, monitoring=(f"http://127.0.0.1:{free_ports(1)[0]}",)))


async def test_one_that_syncs_later_is_refused_also_while_another_does_not_tell(unsafe: NatsServers) -> None:
    options = options_of(unsafe)
    with pytest.raises(EngineUnfit, match="n1 acknowledges what is not yet on its disk"):
        await check(replace(options, monitoring=options.monitoring[1:2]))


async def test_a_wrong_password_is_refused(safe: NatsServers) -> None:
    with pytest.raises(EngineUnfit, match="the NATS servers refuse our login"):
        await check(replace(by_system(safe), system=NatsLogin("admin", "wrong")))


async def test_servers_that_are_not_there_may_come() -> None:
    servers = tuple(f"nats://127.0.0.1:{port}" for port in free_ports(3))
    with pytest.raises(EngineUnavailable, match=r"no NATS server answers at nats://127\.0\.0\.1:"):
        await check(NatsOptions(servers, "c"))


async def test_a_cluster_of_two_servers_cannot_keep_three_copies(tmp_path_factory: pytest.TempPathFactory) -> None:
    servers = NatsServers(tmp_path_factory.mktemp("two"), number=2)
    try:
        servers.wait_ready()
        with pytest.raises(EngineUnfit, match="there are 2 addresses"):
            await check(options_of(servers))
    finally:
        servers.close()
