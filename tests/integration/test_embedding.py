"""A broker inside a program: it publishes, it says who may come in, and it is not alone."""

import asyncio
import copy
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.core.changes import Change
from mqttlite.core.limits import Limits
from mqttlite.event_hub import Link, Listener
from mqttlite.security.authenticator import Credentials
from mqttlite.server import Broker
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.packets import Connack, Publish, Suback
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of, loop_driver_of, questions_of
from tests.support.packets import raw


class Door:
    """An authenticator that does what the test says, and remembers whom it saw."""

    def __init__(self, decide: Callable[[Credentials], Awaitable[bool]]) -> None:
        self._decide = decide
        self.seen: list[Credentials] = []

    async def authenticate(self, credentials: Credentials) -> bool:
        self.seen.append(credentials)
        return await self._decide(credentials)


async def yes(_credentials: Credentials) -> bool:
    return True


async def no(_credentials: Credentials) -> bool:
    return False


async def broken(_credentials: Credentials) -> bool:
    raise LookupError("the directory is away")


async def never(_credentials: Credentials) -> bool:
    await asyncio.get_running_loop().create_future()
    return True


async def test_two_brokers_in_one_program_are_two(rig: Rig) -> None:
    one, two = await rig.broker(), await rig.broker()
    assert one.port != two.port
    here, there = await rig.device(one.port, "device"), await rig.device(two.port, "device")
    await here.subscribe("a")
    await there.subscribe("a")
    assert await one.publish("a", "one") == 0
    assert await two.publish("a", b"two") == 0
    assert await here.message() == ("a", b"one")
    assert await there.message() == ("a", b"two")
    await one.stop()
    await there.ping()


async def test_a_program_learns_the_outcome_of_its_message(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_queued_messages=1))
    unheard = await broker.publish("nobody/here")
    assert (unheard, unheard.delivered, unheard.queued, unheard.dropped) == (0x10, 0, 0, {})
    absent = await rig.device(broker.port, "absent", expiry=60)
    await absent.subscribe("a", 1)
    await absent.close()
    await until(lambda: not core_of(broker).connections)
    kept = await broker.publish("a", qos=1)
    assert (kept, kept.delivered, kept.queued, kept.dropped) == (0, 0, 1, {})
    full = await broker.publish("a", qos=1)
    assert (full, full.reason_code, full.delivered, full.queued, full.dropped) == (0x97, 0x97, 0, 0, {"queue_full": 1})
    assert int(full.message_id) > int(kept.message_id) > 1_600_000_000_000_000
    assert copy.deepcopy(full).dropped == full.dropped, "a program may keep it anywhere"
    assert repr(full) == (
        f"Published(0x97, message_id='{full.message_id}', delivered=0, queued=0, "
        "dropped={'queue_full': 1}, reason='')"
    )
    assert await broker.publish("kept", b"r", retain=True, properties=Properties(content_type="text/plain")) == 0x10
    device = await rig.device(broker.port, "device")
    await device.subscribe("kept")
    packet = await device.expect(Publish)
    assert (packet.payload, packet.retain, packet.properties.content_type) == (b"r", True, "text/plain")


@pytest.mark.parametrize(
    ("topic", "options", "error"),
    [
        ("a/+", {}, TopicNameInvalid),
        ("", {}, TopicNameInvalid),
        ("a\0b", {}, TopicNameInvalid),
        ("x" * 65_536, {}, TopicNameInvalid),
        ("\ud800", {}, ValueError),
        ("a", {"qos": 3}, ValueError),
        ("a", {"payload": bytes(2_000_000)}, ValueError),
        ("a", {"payload": 5}, TypeError),
        ("a", {"properties": Properties(will_delay_interval=5)}, ValueError),
        ("a", {"properties": Properties(topic_alias=7)}, ValueError),
        ("a", {"properties": Properties(subscription_identifiers=[7])}, ValueError),
        ("a", {"properties": Properties(user_properties=[("a" * 70_000, "b")])}, ValueError),
    ],
)
async def test_an_invalid_message_raises_and_does_no_harm(
    rig: Rig, topic: str, options: dict[str, object], error: type[Exception]
) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    await device.subscribe("#")
    with pytest.raises(error):
        await broker.publish(topic, retain=True, **options)  # type: ignore[arg-type]
    await broker.publish("still/here")
    assert (await device.message())[0] == "still/here"


@pytest.mark.parametrize("payload", ["é", "é".encode(), bytearray("é".encode()), memoryview("é".encode())])
async def test_a_payload_is_text_or_whatever_holds_bytes(
    rig: Rig, payload: str | bytes | bytearray | memoryview
) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    await device.subscribe("#")
    await broker.publish("t", payload)
    assert await device.message() == ("t", "é".encode())


async def test_a_program_that_only_publishes_leaves_others_their_turn(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    await device.subscribe("a")
    received = asyncio.create_task(device.message())
    while not received.done():
        await broker.publish("a")


@pytest.mark.parametrize("version", [V311, V5])
async def test_an_accepted_client_comes_in_and_is_known(rig: Rig, version: int) -> None:
    door = Door(yes)
    broker = await rig.broker(authenticator=door)
    device = await rig.device(broker.port, "device", version, username="me")
    (seen,) = door.seen
    assert (seen.client_id, seen.username, seen.password, seen.peer) == ("device", "me", b"secret", device.address)
    assert "secret" not in repr(seen)
    await device.ping()


@pytest.mark.parametrize(
    ("decide", "version", "code"), [(no, V311, 4), (no, V5, 0x86), (broken, V311, 3), (broken, V5, 0x88)]
)
async def test_a_refused_client_is_told_so_and_closed(
    rig: Rig,
    caplog: pytest.LogCaptureFixture,
    decide: Callable[[Credentials], Awaitable[bool]],
    version: int,
    code: int,
) -> None:
    broker = await rig.broker(authenticator=Door(decide))
    device = await rig.dial(broker.port, version)
    device.hello("device", username="me")
    assert (await device.expect(Connack)).reason_code == code
    assert await device.goodbye() is None
    (line,) = [
        each for each in caplog.records if device.address in each.getMessage() and "refused" in each.getMessage()
    ]
    assert vars(line)["fields"]["client_id"] == "device", "as it says of itself"
    assert ("the authenticator failed" in caplog.text) == (decide is broken)
    assert len(core_of(broker).sessions) == 0


async def test_packets_before_connack_wait_for_a_slow_answer_and_others_do_not(rig: Rig) -> None:
    answer = asyncio.Event()

    async def slow(credentials: Credentials) -> bool:
        if credentials.client_id == "eager":
            await answer.wait()
        return True

    broker = await rig.broker(authenticator=Door(slow))
    eager = await rig.dial(broker.port)
    eager.hello("eager")
    eager.send_bytes(raw("82 07 0001 00 0001 'a' 00 30 05 0001 'a' 00 'x' c0 00"))
    other = await rig.device(broker.port, "other")
    (state,) = [each for each in core_of(broker).connections.values() if each.client_id != "other"]
    await until(lambda: state.bytes_received == eager.bytes_sent)
    await other.ping()
    assert eager.waiting() == []
    answer.set()
    await eager.expect(Connack)
    await eager.expect(Suback)
    assert (await eager.expect(Publish)).payload == b"x"


async def test_too_much_before_connack_ends_the_connection(rig: Rig) -> None:
    broker = await rig.broker(authenticator=Door(never), limits=Limits(max_packet_bytes=10_000))
    device = await rig.dial(broker.port)
    device.hello("device")
    for _ in range(200):
        device.publish("a", bytes(5_000))
    assert (await device.expect(Connack)).reason_code == 0x97
    assert await device.goodbye() is None


async def test_an_answer_for_a_client_that_left_is_harmless(rig: Rig) -> None:
    answer = asyncio.Event()

    async def slow(_credentials: Credentials) -> bool:
        await answer.wait()
        return True

    door = Door(slow)
    broker = await rig.broker(authenticator=door)
    device = await rig.dial(broker.port)
    device.hello("device")
    await until(lambda: len(door.seen) == 1)
    device.drop()
    await until(lambda: not core_of(broker).connections)
    answer.set()
    await until(lambda: not questions_of(broker))
    assert len(core_of(broker).sessions) == 0


async def test_a_stop_ends_questions_too_even_one_that_will_not_be_cancelled(rig: Rig) -> None:
    release = asyncio.Event()

    async def stubborn(_credentials: Credentials) -> bool:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return True

    door = Door(stubborn)
    config = Config(listeners=(ListenerOptions(port=0),), stop_timeout_s=0.05)
    broker = await rig.broker(config, authenticator=door)
    device = await rig.dial(broker.port)
    device.hello("device")
    await until(lambda: len(door.seen) == 1)
    async with asyncio.timeout(60):
        await broker.stop()
    assert await device.goodbye() is None
    release.set()
    await until(lambda: not questions_of(broker))


def test_a_config_and_a_port_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="not both"):
        Broker(Config(), port=1883)


class Toy(Listener):
    """Remembers what it hears of clients, and fails for all but one of them."""

    def __init__(self, spared: str = "") -> None:
        self.heard: list[str] = []
        self._spared = spared

    def on_connected(self, link: Link) -> None:
        self._hear("connected", link)

    def on_closed(self, link: Link) -> None:
        self._hear("closed", link)

    def on_refused(self, link: Link) -> None:
        self._hear("refused", link)

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        self.heard.append(f"subscribed {topic_filter.decode()}")

    def _hear(self, event: str, link: Link) -> None:
        client_id = link.connection.client_id
        self.heard.append(f"{event} {client_id}")
        if self._spared not in ("", client_id):
            raise KeyError("a bug")


async def test_a_program_gets_the_events_of_clients(rig: Rig) -> None:
    broker, toy = Broker(port=0), Toy()
    broker.event_listeners.append(toy)
    await rig.enter(broker)
    device = await rig.device(broker.port, "device")
    await device.subscribe("a")
    await device.disconnect()
    nobody = await rig.dial(broker.port)
    nobody.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    await nobody.goodbye()
    await until(lambda: len(toy.heard) == 4)
    assert toy.heard == ["connected device", "subscribed a", "closed device", "refused "]


async def test_an_exception_in_a_listener_costs_no_message(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    broker, toy, other = Broker(port=0), Toy("neighbour"), Toy()
    broker.event_listeners += [toy, other]
    await rig.enter(broker)
    neighbour = await rig.device(broker.port, "neighbour")
    await neighbour.subscribe("a")
    devices = [await rig.device(broker.port, f"device-{number}") for number in range(3)]
    for device in devices:
        await device.disconnect()
    await until(lambda: len(loop_driver_of(broker).links) == 1)
    await broker.publish("a", b"on")
    assert await neighbour.message() == ("a", b"on")
    assert len([line for line in caplog.messages if "a listener to events failed" in line]) == 6
    assert toy.heard == other.heard


async def test_a_program_lists_and_disconnects_clients(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    (entry,) = (await broker.admin.clients()).entries
    assert (entry.client_id, entry.peer) == ("device", device.address)
    assert broker.admin.kick("device")
    assert await device.goodbye() == 0x98


class WatchedStore(MemoryStore):
    """Sees whether garbage is collected while it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.collects: list[bool] = []

    def load(self) -> Iterator[list[Change]]:
        self.collects.append(gc.isenabled())
        return super().load()


async def test_no_garbage_is_collected_while_the_broker_restores_its_state(rig: Rig) -> None:
    store = WatchedStore()
    await rig.enter(Broker(port=0, store=store))
    assert store.collects == [False]
    assert gc.isenabled()
