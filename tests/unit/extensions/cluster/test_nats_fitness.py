"""What is refused by addresses and by what servers tell everybody."""

import pytest

from mqttlite.engine.nats.fitness import Greeting, check_addresses, check_greetings
from mqttlite.engine.port import EngineUnfit

MIB = 1024 * 1024


@pytest.mark.parametrize(
    "servers",
    [
        ("nats://a", "nats://b", "nats://c"),
        ("tls://a:4222", "tls://b:4222", "tls://c:4222"),
        ("a", "b:4222", "nats://user:secret@c"),
        ("nats://a", "nats://b", "nats://c", "nats://d", "nats://e"),
        ("nats://127.0.0.1:1", "nats://127.0.0.1:2", "nats://localhost:3"),
        ("nats://[::1]:1", "nats://[::1]:2", "nats://[::1]:3"),
    ],
)
def test_three_servers_on_three_machines_or_on_loopback_are_taken(servers: tuple[str, ...]) -> None:
    check_addresses(servers)


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ((), "there are 0 addresses"),
        (("nats://a", "nats://b"), "there are 2 addresses.*name a third server"),
        (("nats://a", "nats://b", "nats://a:4222"), "there are 2 addresses"),
        (("nats://a:1", "nats://a:2", "nats://b:1"), r"on 2 machines \(a, b\).*run one server on each of three"),
        (("nats://127.0.0.1:1", "nats://127.0.0.1:2", "nats://a:1"), "on 2 machines"),
        (("redis://a", "nats://b", "nats://c"), "'redis://a' is no address of a NATS server"),
        (("nats://", "nats://b", "nats://c"), "is no address of a NATS server"),
    ],
)
def test_fewer_servers_or_machines_are_refused(servers: tuple[str, ...], says: str) -> None:
    with pytest.raises(EngineUnfit, match=says):
        check_addresses(servers)


def test_a_refused_address_is_shown_without_its_password() -> None:
    with pytest.raises(EngineUnfit, match="'http://host'") as unfit:
        check_addresses(("http://user:secret@host",))
    assert "secret" not in str(unfit.value)


def greetings(
    version: str = "2.12.3", payload: int = MIB, jetstream: bool = True, cluster: str = "c"
) -> list[Greeting]:
    good = [Greeting(f"id{each}", f"n{each}", "2.15.1", 8 * MIB, True, "c") for each in range(2)]
    return [*good, Greeting("id2", "n2", version, payload, jetstream, cluster)]


@pytest.mark.parametrize("version", ["2.12.3", "2.13.0-RC.1", "2.15.1", "3.0.0"])
def test_servers_that_are_new_enough_are_taken(version: str) -> None:
    check_greetings(greetings(version))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (greetings("2.12.2"), r"n2 is 2\.12\.2: install 2\.12\.3 or newer"),
        (greetings("2.9.99"), "n2 is 2.9.99"),
        (greetings("dev"), "n2 is dev"),
        (greetings(jetstream=False), "n2 runs without JetStream: add a jetstream block"),
        (greetings(cluster=""), "n2 is alone: add a cluster block"),
        (greetings(payload=MIB - 1), "up to 1048575 bytes: set max_payload to 1048576"),
        (greetings(cluster="d"), r"different clusters \(c, d\)"),
        (greetings()[:1] * 2, "same NATS server: name each server once"),
    ],
)
def test_servers_that_do_not_fit_are_refused(found: list[Greeting], says: str) -> None:
    with pytest.raises(EngineUnfit, match=says):
        check_greetings(found)
