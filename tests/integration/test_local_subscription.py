"""The program that embeds the broker subscribes as a client without a socket: the same limits, and the same reports."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqttlite import Message
from mqttlite.client.errors import SubscribeRefused
from mqttlite.config import Config, ListenerOptions
from mqttlite.core.connect.connection import Connection
from mqttlite.core.limits import INLINE_FILTERS_BYTES, ITERATION_WORK, MAX_PENDING_BYTES, Limits
from mqttlite.extensions.local_subscription import MESSAGES_AT_ONCE, LocalSubscription
from mqttlite.net.link import WRITE_BUFFER_BYTES
from mqttlite.server import Broker
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of, loop_driver_of
from tests.support.rules import OpenRules

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])


def connection_of(broker: Broker, subscription: LocalSubscription) -> Connection:
    return next(
        link.connection
        for link in loop_driver_of(broker).links.values()
        if link.connection.client_id == subscription.client_id
    )


def unacknowledged(connection: Connection) -> int:
    assert connection.session is not None
    return len(connection.session.inflight.by_id())


async def take(messages: LocalSubscription, count: int) -> list[Message]:
    """So many messages; the last of them is not acknowledged yet."""
    async with asyncio.timeout(60):
        return [await anext(messages) for _ in range(count)]


class Seen:
    """A callback that remembers its messages, and fails with some of them."""

    def __init__(self, *poison: bytes) -> None:
        self.messages: list[Message] = []
        self._poison = poison

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        if message.payload in self._poison:
            raise LookupError("poison")


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_callback_gets_messages_of_devices_and_of_the_program(rig: Rig, qos: int) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    seen = Seen()
    subscription = broker.subscribe("a/+", seen, qos=qos)
    if qos == 1:
        await device.published("a/b", b"1")
    else:
        device.publish("a/b", b"1", qos)
    await until(lambda: seen.payloads == [b"1"])
    await broker.publish("a/c", "2", qos=qos, properties=Properties(content_type="text/plain"))
    await until(lambda: seen.payloads == [b"1", b"2"])
    last = seen.messages[-1]
    assert (last.topic, last.qos, last.retain, last.properties.content_type) == ("a/c", qos, False, "text/plain")
    assert unacknowledged(connection_of(broker, subscription)) == 0
    subscription.unsubscribe()
    assert await broker.publish("a/c", "3", qos=qos) == 0x10
    await until(lambda: len(loop_driver_of(broker).links) == 1)
    subscription.unsubscribe()


async def test_a_coroutine_is_awaited_before_the_next_message_and_the_acknowledgement(rig: Rig) -> None:
    broker = await rig.broker()
    began: list[bytes] = []
    may_end = asyncio.Event()

    async def slow(message: Message) -> None:
        began.append(message.payload)
        await may_end.wait()

    subscription = broker.subscribe("t", slow, qos=1)
    connection = connection_of(broker, subscription)
    for number in range(3):
        await broker.publish("t", str(number), qos=1)
    await until(lambda: began == [b"0"])
    assert unacknowledged(connection) == 3
    may_end.set()
    await until(lambda: began == [b"0", b"1", b"2"] and unacknowledged(connection) == 0)


async def test_a_retained_message_comes_first(rig: Rig) -> None:
    broker = await rig.broker()
    await broker.publish("t", "kept", retain=True)
    async with broker.subscribe("t") as messages:
        (message,) = await take(messages, 1)
    assert (message.payload, message.retain) == (b"kept", True)


@pytest.mark.parametrize("qos", [1, 2])
async def test_an_iterator_acknowledges_when_the_next_message_is_asked_for(rig: Rig, qos: int) -> None:
    broker = await rig.broker()
    async with broker.subscribe("t", qos=qos, receive_maximum=2) as messages:
        connection = connection_of(broker, messages)
        for number in range(5):
            assert await broker.publish("t", str(number), qos=qos) == 0
        await until(lambda: unacknowledged(connection) == 2)
        assert [message.payload for message in await take(messages, 1)] == [b"0"]
        assert (unacknowledged(connection), connection.session and connection.session.queued) == (2, 3)
        assert [message.payload for message in await take(messages, 4)] == [b"1", b"2", b"3", b"4"]
        assert unacknowledged(connection) == 1


async def test_an_exception_refuses_the_message_and_no_other(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    broker = await rig.broker()
    seen = Seen(b"1", b"3")
    subscription = broker.subscribe("t", seen, qos=2)
    connection = connection_of(broker, subscription)
    for number, qos in ((0, 1), (1, 1), (2, 2), (3, 2), (1, 0), (4, 0)):
        await broker.publish("t", str(number), qos=qos)
    await until(lambda: len(seen.messages) == 6 and unacknowledged(connection) == 0)
    assert caplog.text.count("LookupError: poison") == 3
    assert subscription.nacked == 3
    subscription.unsubscribe()
    await until(lambda: not loop_driver_of(broker).links)
    assert connection.drops == {"nacked": 3}


async def test_a_slow_program_loses_qos_0_beyond_the_limits_and_nobody_else_does(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_outbox_messages=20))
    other = Seen()
    broker.subscribe("t", other)
    async with broker.subscribe("t") as messages:
        connection = connection_of(broker, messages)
        for number in range(200):
            await broker.publish("t", number.to_bytes(2, "big") + bytes(10_000))
        kept = WRITE_BUFFER_BYTES // 10_000 + 1 + 20
        assert connection.outbox.drops == {"buffer_full": 200 - kept}
        assert connection.backpressure_count == 1
        numbers = [int.from_bytes(message.payload[:2], "big") for message in await take(messages, kept)]
        assert numbers == list(range(kept))
        await broker.publish("t", "last")
        assert (await take(messages, 1))[0].payload == b"last"
        assert connection.backpressure_s > 0
    await until(lambda: len(other.messages) == 201)


async def test_a_program_that_is_too_slow_for_the_policy_is_told(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_outbox_messages=1, on_overflow="disconnect"))
    messages = broker.subscribe("t")
    for _ in range(10):
        await broker.publish("t", bytes(100_000))
    with pytest.raises(ConnectionAbortedError, match="buffer_full"):
        async for _ in messages:
            pass


async def test_the_end_of_the_broker_ends_an_iterator_after_its_last_message(rig: Rig) -> None:
    broker = Broker(port=0)
    await broker.start()
    messages = broker.subscribe("t", qos=1)
    seen = Seen()
    broker.subscribe("t", seen, qos=1)
    for number in range(3):
        await broker.publish("t", str(number), qos=1)
    await broker.stop()
    assert seen.payloads == [b"0", b"1", b"2"]
    assert [message.payload async for message in messages] == [b"0", b"1", b"2"]


@asyncio_only
async def test_a_callback_that_never_returns_does_not_hold_up_the_end(jump: Callable[[float], None]) -> None:
    broker = Broker(Config(listeners=(ListenerOptions(port=0),), stop_timeout_s=1.0))
    await broker.start()
    cancelled = False

    async def never(_message: Message) -> None:
        nonlocal cancelled
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled = True
            raise

    subscription = broker.subscribe("t", never, qos=1)
    await broker.publish("t", "x", qos=1)
    await until(lambda: unacknowledged(connection_of(broker, subscription)) == 1)
    stop = asyncio.create_task(broker.stop())
    await asyncio.sleep(0)
    jump(1.1)
    await stop
    assert cancelled


async def test_unsubscribing_within_the_callback_is_the_end(rig: Rig) -> None:
    broker = await rig.broker()
    seen: list[bytes] = []

    def once(message: Message) -> None:
        seen.append(message.payload)
        subscription.unsubscribe()

    subscription = broker.subscribe("t", once, qos=1)
    for number in range(3):
        await broker.publish("t", str(number), qos=1)
    await until(lambda: not loop_driver_of(broker).links)
    assert seen == [b"0"]


@pytest.mark.long
async def test_a_flood_leaves_other_tasks_their_time(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    seen = Seen()
    broker.subscribe("t", seen)
    at_most = 0

    async def watch() -> None:
        nonlocal at_most
        while len(seen.messages) < 5_000:
            before = len(seen.messages)
            await asyncio.sleep(0)
            at_most = max(at_most, len(seen.messages) - before)

    watching = asyncio.create_task(watch())
    for _ in range(5_000):
        device.publish("t", b"x")
    async with asyncio.timeout(60):
        await watching
    assert 0 < at_most <= MESSAGES_AT_ONCE


async def test_members_of_a_group_share_its_messages(rig: Rig) -> None:
    broker = await rig.broker()
    one, two = Seen(), Seen()
    broker.subscribe("$share/g/t", one)
    broker.subscribe("$share/g/t", two)
    for number in range(10):
        await broker.publish("t", str(number))
    await until(lambda: len(one.messages) + len(two.messages) == 10)
    assert len(one.messages) == len(two.messages) == 5


async def test_a_program_may_be_silent_for_as_long_as_it_likes(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(server_keep_alive_s=1))
    seen = Seen()
    broker.subscribe("t", seen)
    now = asyncio.get_running_loop().time()
    for hours in range(1, 4):
        core_of(broker).tick(now + 3_600 * hours)
    await broker.publish("t", "on")
    await until(lambda: seen.payloads == [b"on"])


async def test_it_is_seen_as_a_client_whose_transport_is_local(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker = await rig.broker()
    status = broker.subscribe("$SYS/broker/clients/connected")
    watcher = broker.subscribe("t", Seen())
    await until(lambda: f"local client {watcher.client_id!r} connected: MQTT 5.0 on local" in caplog.text)
    links = [(link.listener, link.transport, link.unsent_bytes) for link in loop_driver_of(broker).links.values()]
    assert [(listener, transport) for listener, transport, _ in links] == [("local", "local")] * 2
    watcher.unsubscribe()
    status.unsubscribe()
    await until(lambda: f"{watcher.client_id!r} disconnected: client_disconnected" in caplog.text)


@pytest.mark.parametrize(
    ("topic_filter", "options", "error"),
    [
        ("", {}, TopicFilterInvalid),
        ("a/#/b", {}, TopicFilterInvalid),
        ("a\0", {}, TopicFilterInvalid),
        ("a" * 65_536, {}, TopicFilterInvalid),
        ("$share/g", {}, TopicFilterInvalid),
        ("a", {"qos": 3}, ValueError),
        ("a", {"receive_maximum": 0}, ValueError),
        ("a", {"receive_maximum": 65_536}, ValueError),
        ("a", {"session_expiry_s": 60}, ValueError),
        ("a", {"client_id": "a", "session_expiry_s": -1}, ValueError),
        ("a", {"client_id": "a", "session_expiry_s": 2**32}, ValueError),
        ("a", {"retain_handling": 3}, ValueError),
        ("$share/g/a", {"no_local": True}, ValueError),
        ("a", {"client_id": "a" * 65_536}, ValueError),
        ("a", {"client_id": "a\0"}, ValueError),
        ("a", {"where": "\0"}, ValueError),
        ("a", {"where": "a" * 65_536}, ValueError),
    ],
)
async def test_an_invalid_filter_is_reported_at_once(
    rig: Rig, topic_filter: str, options: dict[str, Any], error: type[Exception]
) -> None:
    broker = await rig.broker()
    with pytest.raises(error):
        broker.subscribe(topic_filter, **options)
    await until(lambda: not loop_driver_of(broker).links)


async def test_too_many_sessions_are_too_many(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_sessions=1))
    broker.subscribe("t")
    with pytest.raises(ConnectionRefusedError, match="sessions"):
        broker.subscribe("t")
    await until(lambda: len(loop_driver_of(broker).links) == 1)


@pytest.mark.parametrize("topic_filter", ["$share/g/#", "$share/g/" + "x" * INLINE_FILTERS_BYTES])
async def test_a_filter_that_a_limit_refuses_raises(rig: Rig, topic_filter: str) -> None:
    broker = await rig.broker(limits=Limits(max_shared_subscriptions=0))
    with pytest.raises(SubscribeRefused, match=r"\(0x97\)") as caught:
        broker.subscribe(topic_filter, lambda message: None)
    assert caught.value.refused == {topic_filter: 0x97}
    await until(lambda: not loop_driver_of(broker).links)
    broker.subscribe("open/#")


class Closed(OpenRules):
    """Clients may do nothing."""

    def is_open(self, topic: bytes) -> bool:
        return False

    def is_readable(self, topic: bytes) -> bool:
        return False

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return False

    def may_receive(self, role: int, topic: bytes) -> bool:
        return False


async def test_no_authorizer_restricts_the_program(rig: Rig) -> None:
    broker = await rig.broker(authorizer=Closed())
    messages = broker.subscribe("secret/#")
    await broker.publish("secret/a", "x")
    assert [message.payload for message in await take(messages, 1)] == [b"x"]


async def test_a_subscription_begins_also_when_the_iteration_has_no_budget_left(rig: Rig) -> None:
    broker = await rig.broker()
    effects = core_of(broker).effects
    effects.work = ITERATION_WORK
    effects.pending_bytes = 2 * MAX_PENDING_BYTES
    messages = broker.subscribe("t")
    assert effects.work >= ITERATION_WORK
    assert effects.pending_bytes >= 2 * MAX_PENDING_BYTES
    await broker.publish("t", "x")
    assert [message.payload for message in await take(messages, 1)] == [b"x"]


async def test_an_acknowledgement_that_this_iteration_has_no_budget_for_is_handled_later(rig: Rig) -> None:
    broker = await rig.broker()
    messages = broker.subscribe("t", qos=1, receive_maximum=1)
    for payload in ("1", "2"):
        await broker.publish("t", payload, qos=1)
    await take(messages, 1)
    core_of(broker).effects.work = ITERATION_WORK
    assert [message.payload for message in await take(messages, 1)] == [b"2"]


async def test_a_broker_that_does_not_run_takes_no_subscription() -> None:
    with pytest.raises(RuntimeError, match="does not run"):
        Broker(port=0).subscribe("t")


async def test_a_subscription_of_the_program_may_have_a_filter(rig: Rig) -> None:
    broker = await rig.broker()
    messages = broker.subscribe("t", where="payload > 2")
    for number in range(5):
        await broker.publish("t", str(number))
    assert [message.payload for message in await take(messages, 2)] == [b"3", b"4"]
    messages.unsubscribe()
    with pytest.raises(SubscribeRefused, match="position 10"):
        broker.subscribe("t", where="payload == 2")


KEPT: dict[str, Any] = {"qos": 1, "client_id": "billing", "session_expiry_s": 1_000}


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_kept_subscription_goes_on_after_a_restart(rig: Rig, tmp_path: Path, qos: int) -> None:
    config = Config(listeners=(ListenerOptions(port=0),), data_dir=str(tmp_path))
    broker = Broker(config)
    await broker.start()
    async with broker.subscribe("t", **KEPT | {"qos": qos}) as messages:
        assert (messages.client_id, messages.session_present) == ("billing", False)
        for number in range(3):
            await broker.publish("t", str(number), qos=qos)
        assert [message.payload for message in await take(messages, 2)] == [b"0", b"1"]
    await broker.publish("t", "3", qos=qos)
    await broker.stop()
    broker = await rig.broker(config)
    await broker.publish("t", "4", qos=qos)
    async with broker.subscribe("t", **KEPT | {"qos": qos}) as messages:
        assert messages.session_present
        found = await take(messages, 4)
    assert [message.payload for message in found] == [b"1", b"2", b"3", b"4"]
    assert [message.dup for message in found] == [True, True, False, False]


async def test_the_end_of_the_broker_hands_out_no_message_that_comes_again(rig: Rig) -> None:
    broker = Broker(port=0)
    await broker.start()
    messages = broker.subscribe("t", **KEPT)
    for number in range(3):
        await broker.publish("t", str(number), qos=1)
    assert [message.payload for message in await take(messages, 1)] == [b"0"]
    await broker.stop()
    assert [message async for message in messages] == []
    await broker.start()
    try:
        again = broker.subscribe("t", **KEPT)
        assert [message.payload for message in await take(again, 3)] == [b"0", b"1", b"2"]
    finally:
        await broker.stop()


async def test_unsubscribing_ends_a_kept_session_and_closing_does_not(rig: Rig) -> None:
    broker = await rig.broker()
    messages = broker.subscribe("t", **KEPT)
    messages.close()
    messages.close()
    assert await broker.publish("t", "1", qos=1) == 0
    broker.subscribe("t", **KEPT).unsubscribe()
    assert await broker.publish("t", "2", qos=1) == 0x10
    assert not broker.subscribe("t", **KEPT).session_present


async def test_a_kept_session_has_the_latest_filter_alone(rig: Rig) -> None:
    broker = await rig.broker()
    broker.subscribe("old", **KEPT).close()
    await broker.publish("old", "1", qos=1)
    async with broker.subscribe("new", **KEPT) as messages:
        session = connection_of(broker, messages).session
        assert session is not None
        await until(lambda: session.subscriptions.keys() == {b"new"})
        await broker.publish("old", "2", qos=1)
        await broker.publish("new", "3", qos=1)
        assert [message.payload for message in await take(messages, 2)] == [b"1", b"3"]


async def test_a_refused_filter_leaves_a_kept_session_as_it_was(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_shared_subscriptions=0))
    with pytest.raises(SubscribeRefused):
        broker.subscribe("$share/g/t", **KEPT)
    await until(lambda: not loop_driver_of(broker).links)
    assert core_of(broker).sessions.get("billing") is None
    broker.subscribe("t", **KEPT).close()
    with pytest.raises(SubscribeRefused):
        broker.subscribe("$share/g/t", **KEPT)
    await broker.publish("t", "1", qos=1)
    assert [message.payload for message in await take(broker.subscribe("t", **KEPT), 1)] == [b"1"]


async def test_a_second_subscription_with_a_client_identifier_takes_the_first_over(rig: Rig) -> None:
    broker = await rig.broker()
    first = broker.subscribe("t", client_id="a")
    second = broker.subscribe("t", client_id="a")
    with pytest.raises(ConnectionAbortedError, match="taken_over"):
        await anext(first)
    await broker.publish("t", "1")
    assert [message.payload for message in await take(second, 1)] == [b"1"]


async def test_no_local_leaves_out_messages_of_the_program_and_no_others(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    messages = broker.subscribe("t", qos=1, no_local=True, retain_as_published=True)
    await broker.publish("t", "the program's", qos=1)
    device.publish("t", b"the device's", 1, retain=True)
    (message,) = await take(messages, 1)
    assert (message.payload, message.retain) == (b"the device's", True)
    silent = broker.subscribe("t", retain_handling=2)
    await broker.publish("t", "new")
    assert [message.payload for message in await take(silent, 1)] == [b"new"]
