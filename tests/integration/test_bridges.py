"""Two brokers of ours with a bridge between them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mqttlite import Client, Message
from mqttlite.config import ConfigError
from mqttlite.config.file import parse_config
from mqttlite.extensions.bridge.bridges import ID_FILE, Bridges
from mqttlite.extensions.bridge.path import PROPERTY
from mqttlite.server import Broker
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connack
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import assembly_of, core_of

pytestmark = pytest.mark.slow

BOTH: list[dict[str, Any]] = [{"pattern": "#", "direction": "both", "qos": 2}]
QUIET_S = 0.3
"""How long nothing may come before a test believes that nothing comes."""
LATER_S = 0.01
"""The clocks of two brokers in one process differ by some milliseconds, because that of uvloop counts those."""


def bridges_of(broker: Broker) -> Bridges:
    found = assembly_of(broker).bridges
    assert found is not None
    return found


def is_connected(broker: Broker, name: str = "b") -> Callable[[], bool]:
    return lambda: bridges_of(broker).get(name).state == "connected"


async def start(rig: Rig, data_dir: Path | None = None, port: int = 0, **options: Any) -> Broker:
    """A broker; `bridges` are its bridges."""
    raw: dict[str, Any] = {"listeners": [{"port": port}], **options}
    if data_dir is not None:
        raw["data_dir"] = str(data_dir)
    return await rig.enter(Broker(parse_config(raw)))


def bridge(*ports: int, **options: Any) -> dict[str, Any]:
    found = {"name": "b", "addresses": [f"127.0.0.1:{port}" for port in ports], "topics": BOTH, "max_delay_s": 0.5}
    return {**found, **options}


class Seen:
    """What a client gets of a filter."""

    def __init__(self, broker: Broker, topic_filter: str = "#") -> None:
        self.messages: list[Message] = []
        broker.subscribe(topic_filter, self.messages.append, qos=2, retain_as_published=True)

    @property
    def payloads(self) -> list[str]:
        return [each.payload.decode() for each in self.messages]


@pytest.mark.parametrize("version", ["5.0", "3.1.1"])
async def test_two_brokers_that_are_joined_in_everything_have_each_message_once(rig: Rig, version: str) -> None:
    there = await start(rig)
    here = await start(rig, bridges=[bridge(there.port, version=version)])
    seen = {"here": Seen(here), "there": Seen(there)}
    await until(is_connected(here))
    wanted = []
    for name, port in (("here", here.port), ("there", there.port)):
        async with Client("127.0.0.1", port) as client:
            for qos in (0, 1, 2):
                await client.publish(f"t/{name}/{qos}", f"{name} {qos}", qos=qos, retain=qos == 1)
                wanted.append(f"{name} {qos}")
    await here.publish("t/program", "program", qos=1)
    wanted.append("program")
    await until(lambda: all(len(each.messages) >= len(wanted) for each in seen.values()))
    await asyncio.sleep(QUIET_S)
    for each in seen.values():
        assert sorted(each.payloads) == sorted(wanted)
        assert {message.payload.decode() for message in each.messages if message.retain} == {"here 1", "there 1"}
        assert all(message.qos == 0 for message in each.messages if message.payload.endswith(b" 0"))


async def test_the_properties_of_a_message_survive(rig: Rig) -> None:
    there = await start(rig)
    here = await start(rig, bridges=[bridge(there.port)])
    seen = Seen(there)
    await until(is_connected(here))
    properties = Properties(
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\x01",
        payload_format_indicator=1,
        message_expiry_interval=100,
        user_properties=[("k", "v"), ("k", "w")],
    )
    await here.publish("a", "x", qos=1, properties=properties)
    await until(lambda: len(seen.messages) == 1)
    found = seen.messages[0].properties
    assert found.content_type == "text/plain"
    assert found.response_topic == "answers"
    assert found.correlation_data == b"\x01"
    assert found.payload_format_indicator == 1
    assert found.message_expiry_interval in (99, 100)
    assert found.user_properties[:-1] == [("k", "v"), ("k", "w")]
    assert found.user_properties[-1][0] == PROPERTY


async def test_a_circle_of_three_brokers_delivers_each_message_once_to_each(rig: Rig, unused_tcp_port: int) -> None:
    first = await start(rig, port=unused_tcp_port)
    second = await start(rig, bridges=[bridge(first.port)])
    third = await start(rig, bridges=[bridge(first.port, name="b"), bridge(second.port, name="c")])
    seen = [Seen(each) for each in (first, second, third)]
    await until(is_connected(second))
    await until(is_connected(third))
    await until(is_connected(third, "c"))
    await first.publish("a", "x", qos=1)
    await asyncio.sleep(QUIET_S)
    # By two ways it comes twice at most, and then it ends.
    assert [len(each.messages) for each in seen] == [3, 3, 2]
    counts = [len(each.messages) for each in seen]
    await asyncio.sleep(QUIET_S)
    assert [len(each.messages) for each in seen] == counts


async def test_messages_wait_while_the_other_broker_is_away(rig: Rig, unused_tcp_port: int, tmp_path: Path) -> None:
    here = await start(rig, tmp_path / "here", bridges=[bridge(unused_tcp_port)])
    for number in range(100):
        await here.publish("a", str(number), qos=1)
    assert bridges_of(here).get("b").waiting == 100
    there = await start(rig, tmp_path / "there", port=unused_tcp_port)
    seen = Seen(there)
    await until(lambda: len(seen.messages) >= 100)
    assert seen.payloads == [str(number) for number in range(100)]
    await until(lambda: bridges_of(here).get("b").waiting == 0)


async def test_a_bridge_uses_the_next_address_and_returns_to_the_first(
    rig: Rig, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.extensions.bridge.bridge.FAIL_BACK_S", 0.2)
    monkeypatch.setattr("mqttlite.extensions.bridge.bridge.LOOK_S", 0.1)
    second = await start(rig)
    here = await start(rig, bridges=[bridge(unused_tcp_port, second.port)])
    seen = Seen(second)
    await until(is_connected(here))
    await here.publish("a", "1", qos=2)
    await until(lambda: seen.payloads == ["1"])
    first = await start(rig, port=unused_tcp_port)
    seen = Seen(first)
    found = bridges_of(here).get("b")
    await until(lambda: found.endpoint.endswith(f":{unused_tcp_port}"))
    await here.publish("a", "2", qos=2)
    await until(lambda: seen.payloads == ["2"])


async def test_only_the_named_topics_are_carried_with_their_prefixes_and_without_retain(rig: Rig) -> None:
    topics = [
        {"pattern": "s/#", "remote_prefix": "here/", "retained": False},
        {"pattern": "cmd/#", "direction": "in", "local_prefix": "from/"},
    ]
    there = await start(rig)
    here = await start(rig, bridges=[bridge(there.port, topics=topics)])
    at_here, at_there = Seen(here), Seen(there)
    await until(is_connected(here))
    await here.publish("s/1", "s", qos=1, retain=True)
    await here.publish("x", "x", qos=1)
    await there.publish("cmd/1", "c", qos=1, retain=True)
    await there.publish("x", "y", qos=1)
    await until(lambda: len(at_here.messages) == 3 and len(at_there.messages) == 3)
    assert {(each.topic, each.retain) for each in at_there.messages} == {
        ("here/s/1", False),
        ("cmd/1", True),
        ("x", False),
    }
    assert {(each.topic, each.retain) for each in at_here.messages} == {
        ("s/1", True),
        ("from/cmd/1", True),
        ("x", False),
    }


async def test_retained_messages_of_both_sides_come_with_the_first_connection_alone(rig: Rig) -> None:
    there = await start(rig)
    await there.publish("r/there", "1", qos=1, retain=True)
    here = await start(rig, bridges=[bridge(there.port)])
    seen = Seen(here)
    await until(lambda: seen.payloads == ["1"])
    await bridges_of(here).get("b").pause()
    await bridges_of(here).get("b").resume()
    await until(is_connected(here))
    await asyncio.sleep(QUIET_S)
    assert seen.payloads == ["1"]


async def test_a_bridge_that_is_taken_out_of_the_configuration_leaves_no_session(rig: Rig, tmp_path: Path) -> None:
    there = await start(rig)
    async with Broker(
        parse_config({"data_dir": str(tmp_path), "listeners": [{"port": 0}], "bridges": [bridge(there.port)]})
    ):
        pass
    assert len((tmp_path / ID_FILE).read_text().strip()) == 16
    async with Broker(parse_config({"data_dir": str(tmp_path), "listeners": [{"port": 0}]})) as here:
        assert core_of(here).sessions.get("$bridge/b") is None


async def test_a_session_of_a_bridge_is_no_other_clients(rig: Rig) -> None:
    there = await start(rig)
    here = await start(rig, bridges=[bridge(there.port)])
    device = await rig.dial(here.port)
    with suppress(Exception):
        await device.connect("$bridge/b", clean_start=True)
    await until(is_connected(here))


async def test_the_state_is_published_as_mosquitto_does(rig: Rig, unused_tcp_port: int) -> None:
    here = await start(rig, bridges=[bridge(unused_tcp_port)])
    seen = Seen(here, "$SYS/broker/connection/b/state")
    await until(lambda: seen.payloads == ["0"])
    there = await start(rig, port=unused_tcp_port)
    await until(lambda: seen.payloads == ["0", "1"])
    await there.stop()
    await until(lambda: seen.payloads == ["0", "1", "0"])


async def test_a_tls_file_that_is_not_there_is_named(rig: Rig) -> None:
    with pytest.raises(ConfigError, match=r"bridges: b\.tls: "):
        await start(rig, bridges=[bridge(1, tls={"ca_file": "/nowhere.crt"})])


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_bridge_connects_over_websocket(rig: Rig, certs: Path, is_tls: bool) -> None:
    tls = {"cert_file": str(certs / "server.crt"), "key_file": str(certs / "server.key")}
    listener: dict[str, Any] = {"port": 0, "websocket": {"path": "/there"}, **({"tls": tls} if is_tls else {})}
    there = await start(rig, listeners=[listener])
    address = f"{'wss' if is_tls else 'ws'}://localhost:{there.port}/there"
    options = {"tls": {"ca_file": str(certs / "ca.crt")}} if is_tls else {}
    here = await start(rig, bridges=[bridge(addresses=[address], **options)])
    seen, came = Seen(there), Seen(here)
    await until(is_connected(here))
    assert bridges_of(here).get("b").endpoint == address
    for number in range(100):
        await here.publish("out", f"{number}", qos=2)
        await there.publish("in", f"{number}", qos=2)
    for each in (seen, came):
        await until(lambda each=each: len(each.messages) >= 200)  # type: ignore[misc]
        assert sorted(each.payloads) == sorted(2 * [str(number) for number in range(100)])


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("thermometer", {}, ""),
        ("thermometer", {"server_name": "localhost"}, ""),
        ("thermometer", {"server_name": "other.example"}, "Hostname mismatch"),
        ("thermometer", {"server_name": "other.example", "insecure": True}, ""),
        ("", {}, "client certificate"),
    ],
)
async def test_a_bridge_connects_over_tls_with_its_certificate(
    rig: Rig, certs: Path, name: str, options: dict[str, Any], said: str
) -> None:
    authority = {"ca_file": str(certs / "ca.crt")}
    server = {
        "cert_file": str(certs / "server.crt"),
        "key_file": str(certs / "server.key"),
        "require_client_cert": True,
    }
    client = {"cert_file": str(certs / f"{name}.crt"), "key_file": str(certs / f"{name}.key")} if name else {}
    there = await start(rig, listeners=[{"port": 0, "tls": {**authority, **server}}])
    here = await start(rig, bridges=[bridge(there.port, tls={**authority, **client, **options})])
    seen = Seen(there)
    found = bridges_of(here).get("b")
    await until(lambda: found.has_tried or found.state == "connected")
    assert found.state == ("away" if said else "connected")
    assert said in found.reason
    await here.publish("out", "x", qos=1)
    if not said:
        await until(lambda: seen.payloads == ["x"])


async def test_only_what_passes_a_filter_crosses_the_link(rig: Rig) -> None:
    there = await start(rig)
    topics = [
        {"pattern": "t/#", "direction": "both", "qos": 2, "filter": 'attributes.scope = "global"'},
        {"pattern": "alarm/#", "direction": "both", "qos": 1},
    ]
    here = await start(rig, bridges=[bridge(there.port, topics=topics)])
    seen = {"here": Seen(here), "there": Seen(there)}
    await until(is_connected(here))
    for broker in (here, there):
        for scope in ("local", "global"):
            properties = Properties(user_properties=[("scope", scope)])
            await broker.publish("t/a", scope, qos=2, properties=properties)
        await broker.publish("alarm/a", "alarm", qos=1)
    wanted = ["alarm"] * 2 + ["global"] * 2 + ["local"]
    for each in seen.values():
        await until(lambda each=each: len(each.messages) >= len(wanted))  # type: ignore[misc]
    await asyncio.sleep(QUIET_S)
    assert [sorted(each.payloads) for each in seen.values()] == [wanted, wanted]
    found = bridges_of(here).get("b").view()
    assert (found.sent, found.received, found.filtered, found.dropped) == (2, 2, 0, {})


async def test_a_filter_is_taken_out_of_the_subscriptions_with_the_configuration(rig: Rig, tmp_path: Path) -> None:
    there = await start(rig)
    for where, count in (("qos = 2", 0), ("", 1)):
        topics = [{"pattern": "#", "direction": "both", "filter": where}]
        async with Broker(
            parse_config(
                {"listeners": [{"port": 0}], "data_dir": str(tmp_path), "bridges": [bridge(there.port, topics=topics)]}
            )
        ) as here:
            seen = {"here": Seen(here), "there": Seen(there)}
            await until(is_connected(here))
            await here.publish("a", "out", qos=1)
            await there.publish("a", "in", qos=1)
            await asyncio.sleep(QUIET_S)
            assert (seen["there"].payloads.count("out"), seen["here"].payloads.count("in")) == (count, count)


async def test_an_address_that_accepts_and_closes_is_left_for_the_next(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.extensions.bridge.bridge.FAIL_BACK_S", 0.2)
    monkeypatch.setattr("mqttlite.extensions.bridge.bridge.LOOK_S", 0.05)
    connects = 0

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connects
        if await reader.read(1_000):
            connects += 1
            writer.write(encode(Connack(False, 0), V5))
        writer.close()

    second = await start(rig)
    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        here = await start(rig, bridges=[bridge(server.sockets[0].getsockname()[1], second.port)])
        await until(is_connected(here))
        await until(lambda: bridges_of(here).get("b").endpoint.endswith(f":{second.port}"))
        await asyncio.sleep(3)
    assert connects <= 5  # at the beginning, and after 0.2, 0.4, 0.8 and 1.6 s


async def test_a_lazy_bridge_connects_for_messages_and_leaves_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttlite.extensions.bridge.bridge.LOOK_S", 0.05)
    there = await start(rig)
    here = await start(rig, bridges=[bridge(there.port, start="lazy", idle_timeout_s=1.0)])
    seen = Seen(there)
    found = bridges_of(here).get("b")
    assert found.state == "idle"
    for number in ("1", "2"):
        await here.publish("a", number, qos=1)
        await until(is_connected(here))
        await until(lambda number=number: seen.payloads[-1:] == [number])  # type: ignore[misc]
        await until(lambda: found.state == "idle")
    assert seen.payloads == ["1", "2"]


async def test_a_bridge_that_connects_once_waits_after_a_loss_until_it_is_resumed(
    rig: Rig, unused_tcp_port: int
) -> None:
    there = await start(rig, port=unused_tcp_port)
    here = await start(rig, bridges=[bridge(unused_tcp_port, start="once")])
    await until(is_connected(here))
    await there.stop()
    found = bridges_of(here).get("b")
    await until(lambda: found.state == "idle")
    await start(rig, port=unused_tcp_port)
    await found.resume()
    await until(is_connected(here))


def retained_of(broker: Broker) -> dict[bytes, bytes]:
    found = core_of(broker).router.retained.search(b"s/#").take(1_000)
    return {each.topic: each.payload for each in found}


@pytest.mark.parametrize(("is_on_here", "is_on_there"), [(True, True), (True, False), (False, True), (False, False)])
async def test_retained_messages_are_compared_where_both_operators_want_it(
    rig: Rig, is_on_here: bool, is_on_there: bool
) -> None:
    there = await start(rig, newest_retained=is_on_there)
    here = await start(rig, bridges=[bridge(there.port)], newest_retained=is_on_here)
    await until(is_connected(here))
    is_on = is_on_here and is_on_there
    assert bridges_of(here).get("b").view().newest_retained is is_on
    for broker in (here, there):
        sources = core_of(broker).sessions.values()
        assert [each.dates_retained for each in sources] == [is_on] * len(sources)


@pytest.mark.parametrize("qos", [1, 2])
async def test_retained_messages_that_both_sides_changed_are_the_newest_on_both(
    rig: Rig, tmp_path: Path, unused_tcp_port: int, qos: int
) -> None:
    """Also after a restart of either side while the bridge is away."""
    topics = [{"pattern": "#", "direction": "both", "qos": qos}]
    here_options: dict[str, Any] = {"bridges": [bridge(unused_tcp_port, topics=topics)], "newest_retained": True}
    there = await start(rig, tmp_path / "there", unused_tcp_port, newest_retained=True)
    here = await start(rig, tmp_path / "here", **here_options)
    await until(is_connected(here))
    assert bridges_of(here).get("b").view().newest_retained
    for broker, name in ((here, "here"), (there, "there")):
        await broker.publish(f"s/{name}/removed", "x", qos=1, retain=True)
        await broker.publish(f"s/{name}/changed", "x", qos=1, retain=True)
    await until(lambda: len(retained_of(here)) == len(retained_of(there)) == 4)
    await bridges_of(here).get("b").pause()

    async def change(first: Broker, second: Broker, name: str) -> None:
        for topic, older, newer in (("a", "older", "newer"), ("b", "older", ""), ("removed", "again", "")):
            await first.publish(f"s/{name}/{topic}", older, qos=1, retain=True)
            await asyncio.sleep(LATER_S)
            await second.publish(f"s/{name}/{topic}", newer, qos=1, retain=True)
        await first.publish(f"s/{name}/changed", "", qos=1, retain=True)
        await asyncio.sleep(LATER_S)
        await second.publish(f"s/{name}/changed", "newer", qos=1, retain=True)

    await change(here, there, "there")
    await change(there, here, "here")
    await here.stop()
    await there.stop()
    there = await start(rig, tmp_path / "there", unused_tcp_port, newest_retained=True)
    here = await start(rig, tmp_path / "here", **here_options)
    await until(is_connected(here))
    wanted = {f"s/{name}/{each}".encode(): b"newer" for name in ("here", "there") for each in ("a", "changed")}
    await until(lambda: bridges_of(here).get("b").waiting == 0 and retained_of(here) == retained_of(there))
    await asyncio.sleep(QUIET_S)
    assert retained_of(here) == wanted
    assert retained_of(there) == wanted


async def test_at_the_first_contact_the_newer_of_two_old_retained_messages_holds(
    rig: Rig, unused_tcp_port: int
) -> None:
    topics = [{"pattern": "#", "direction": "both", "qos": 1}]
    there = await start(rig, port=unused_tcp_port, newest_retained=True)
    here = await start(rig, bridges=[bridge(unused_tcp_port, topics=topics)], newest_retained=True)
    await bridges_of(here).get("b").pause()
    await here.publish("s/1", "older", qos=1, retain=True)
    await asyncio.sleep(LATER_S)
    await there.publish("s/1", "newer", qos=1, retain=True)
    await there.publish("s/2", "older", qos=1, retain=True)
    await asyncio.sleep(LATER_S)
    await here.publish("s/2", "newer", qos=1, retain=True)
    await bridges_of(here).get("b").resume()
    await until(is_connected(here))
    wanted = {b"s/1": b"newer", b"s/2": b"newer"}
    await until(lambda: retained_of(here) == retained_of(there) == wanted)
    await asyncio.sleep(QUIET_S)
    assert retained_of(here) == retained_of(there) == wanted
