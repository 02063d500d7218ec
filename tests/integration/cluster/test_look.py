"""`mqttlite check` asks the servers that `[cluster]` and `[nodes]` name."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.engine.nats.fitness import check_account
from mqttlite.engine.nats.servers import NatsLogin, NatsOptions
from mqttlite.engine.port import EngineUnavailable
from tests.support.nats_servers import READY_S, NatsServers, free_ports

pytestmark = pytest.mark.slow

ACCOUNTS = """
accounts {
    WITH: { jetstream: enabled, users: [ { user: with, password: w } ] }
    WITHOUT: { users: [ { user: without, password: w } ] }
}
"""

Check = Callable[[str], Result]


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    for servers in running(NatsServers(tmp_path_factory.mktemp("safe"), more=ACCOUNTS)):
        asyncio.run(lead(NatsOptions(servers.urls, "c", NatsLogin("with", "w"))))
        yield servers


@pytest.fixture(scope="module")
def unsafe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    yield from running(NatsServers(tmp_path_factory.mktemp("unsafe"), sync="2m"))


def running(servers: NatsServers) -> Iterator[NatsServers]:
    try:
        servers.wait_ready()
        yield servers
    finally:
        servers.close()


async def lead(options: NatsOptions) -> None:
    """Wait until the servers have a leader."""
    async with asyncio.timeout(READY_S):
        while True:
            try:
                return await check_account(options)
            except EngineUnavailable:
                await asyncio.sleep(0.1)


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Runs `mqttlite check` for a broker with these sections."""

    def check(sections: str) -> Result:
        file = tmp_path / "broker.toml"
        file.write_text(f'data_dir = "{tmp_path / "data"}"\n[[listeners]]\nport = 0\n{sections}\n')
        return CliRunner().invoke(main, ["check", str(file)])

    return check


def cluster(servers: NatsServers, more: str = "") -> str:
    monitoring = [f"http://127.0.0.1:{port}" for port in servers.monitoring]
    return f"[cluster]\nservers = {list(servers.urls)}\nmonitoring = {monitoring}\n{more}"


def nodes(urls: tuple[str, ...], more: str = "") -> str:
    return f'[nodes]\nservers = {list(urls)}\nnode = "a"\n{more}'


def login(user: str) -> str:
    return f'user = "{user}"\npassword = "w"\n'


def test_servers_that_fit_are_right(check: Check, safe: NatsServers) -> None:
    found = check(cluster(safe, login("with")))
    assert found.exit_code == 0, found.output
    found = check(nodes(safe.urls, login("with")))
    assert found.exit_code == 0, found.output


def test_a_broker_would_not_start_with_servers_that_do_not_sync(check: Check, unsafe: NatsServers) -> None:
    found = check(cluster(unsafe))
    assert found.exit_code == 2, found.output
    assert "write sync_interval: always into its jetstream block" in found.stderr


def test_a_refused_login_and_an_account_without_jetstream_are_named(check: Check, safe: NatsServers) -> None:
    for section in (cluster(safe, login("nobody")), cluster(safe, login("without"))):
        assert check(section).exit_code == 2
    assert "the NATS servers refuse our login" in check(cluster(safe, login("nobody"))).stderr
    assert "JetStream is not for our account" in check(cluster(safe, login("without"))).stderr
    found = check(nodes(safe.urls, login("nobody")))
    assert (found.exit_code, "nodes: the NATS servers refuse our login" in found.stderr) == (1, True), found.output
    found = check(nodes(safe.urls, login("without")))
    assert (found.exit_code, "nodes: JetStream is not for our account" in found.stderr) == (1, True), found.output


def test_a_server_that_does_not_answer_is_a_warning(check: Check, safe: NatsServers) -> None:
    (port,) = free_ports(1)
    silent = f"nats://127.0.0.1:{port}"
    found = check(nodes((silent,)))
    assert (found.exit_code, f"nodes.servers: {silent} does not answer now" in found.stderr) == (1, True), found.output
    monitoring = [f"http://127.0.0.1:{each}" for each in safe.monitoring]
    section = f"[cluster]\nservers = {[*safe.urls[:2], silent]}\nmonitoring = {monitoring}\n{login('with')}"
    found = check(section)
    assert found.exit_code == 1, found.output
    assert f"cluster.servers: {silent} does not answer now" in found.stderr


def test_a_machine_whose_engine_is_not_started_yet_is_right_but_for_the_other_servers(check: Check) -> None:
    urls = [f"nats://127.0.0.1:{port}" for port in free_ports(3)]
    found = check(
        f'[cluster]\nservers = {urls}\n[cluster.engine]\naddress = "{urls[0]}"\nsecret = "0123456789abcdef"\n'
    )
    assert found.exit_code == 1, found.output
    assert [url for url in urls if f"{url} does not answer now" in found.stderr] == urls[1:]


def test_two_servers_are_too_few_for_a_cluster(check: Check, safe: NatsServers) -> None:
    found = check(f"[cluster]\nservers = {list(safe.urls[:2])}\nsync_assured = true\n")
    assert (found.exit_code, "a cluster needs 3 NATS servers" in found.stderr) == (2, True), found.output


def test_nodes_are_warned_of_a_server_without_jetstream_and_of_servers_that_are_apart(
    check: Check, tmp_path: Path, safe: NatsServers
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    plain = NatsServers(folder, number=1, has_jetstream=False, more="max_payload: 64KB")
    try:
        plain.wait_ready()
        found = check(nodes(plain.urls))
        assert found.exit_code == 1, found.output
        assert "n0 runs without JetStream, so changes of users, rules, bans and others are refused" in found.stderr
        assert "n0 takes messages of up to 65536 bytes, so nodes do not use it" in found.stderr
        found = check(nodes((*plain.urls, safe.urls[0])))
        assert "n0 is alone, and nodes there do not hear those at the others" in found.stderr, found.output
    finally:
        plain.close()
