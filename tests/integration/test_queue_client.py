"""`Client.queue` against a broker: acknowledge, refuse, extend, run handlers, stop."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from mqttlite.client import Client, IdempotentHandler, MqttError, Properties, QueueMessage, SubscribeRefused
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.queues.options import DeliveryOptions, QueueOptions, RetryOptions
from mqttlite.server import Broker

PATIENCE_S = 60.0
CREATE = DeliveryOptions(create_by_subscribing=True)

AT_ONCE = RetryOptions(min_s=0, max_s=0)


def queue_of(name: str, **fields: object) -> QueueOptions:
    given = {"filters": (f"{name}/#",), "retry": AT_ONCE, "ack_deadline_s": 60.0, "allow_short_deadlines": True}
    return QueueOptions(name=name, **(given | fields))  # type: ignore[arg-type]


QUEUES = (
    queue_of("q"),
    queue_of("slow"),
    queue_of("brief", ack_deadline_s=0.3),
    queue_of("once", max_attempts=1),
    queue_of("second", ack_deadline_s=1.0),
)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(Config(listeners=(ListenerOptions(port=0),), queues=QUEUES, delivery=CREATE)) as running:
        yield running


def client(broker: Broker, **options: object) -> Client:
    return Client("127.0.0.1", broker.port, min_reconnect_delay=0.01, **options)  # type: ignore[arg-type]


def ends(broker: Broker, name: str = "q") -> dict[str, int]:
    return {end: count for end, count in broker.queues.state(name).ends.items() if count}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def publish(us: Client, *payloads: str, topic: str = "q/a") -> None:
    for each in payloads:
        await us.publish(topic, each, qos=1)


async def test_a_message_has_the_facts_that_the_broker_knows(broker: Broker) -> None:
    async with client(broker) as us, us.queue("q") as queue:
        told = [("ack-id", "a lie"), ("ordering-key", "k")]
        await us.publish("q/a", "x", 1, properties=Properties(user_properties=told))
        message = await anext(queue)
        assert (message.topic, message.payload, message.attempt, message.ordering_key) == ("q/a", b"x", 1, "k")
        assert message.ack_id != "a lie"
        assert message.publish_time is not None
        assert abs(message.publish_time.timestamp() - time.time()) < 60
        assert message.ack()
        assert not message.nack(), "a message is settled once"
        await until(lambda: ends(broker) == {"acknowledged": 1})
        assert not len(us.messages), "the messages of a queue are nobody else's"


async def test_a_refused_message_comes_again_after_its_delay(broker: Broker) -> None:
    async with client(broker) as us:
        await publish(us, "x", topic="slow/a")
        at = time.monotonic()
        async for message in us.queue("slow"):
            if message.attempt == 1:
                first = message.message_id
                message.nack(delay=0.2)
                continue
            assert (message.attempt, message.message_id) == (2, first)
            assert time.monotonic() - at >= 0.2
            message.ack()
            break
        await until(lambda: ends(broker, "slow") == {"acknowledged": 1})


async def test_an_acknowledgement_out_of_order_counts_at_once(broker: Broker) -> None:
    async with client(broker) as us, us.queue("slow") as queue:
        await publish(us, "1", "2", "3", topic="slow/a")
        first, second, third = [await anext(queue) for _ in range(3)]
        third.ack()
        await until(lambda: ends(broker, "slow") == {"acknowledged": 1})
        second.nack()
        again = await anext(queue)
        assert (again.payload, again.attempt) == (b"2", 2)
        first.ack()  # PUBACK of all three leaves now, and the refused one is not acknowledged by it
        await until(lambda: ends(broker, "slow") == {"acknowledged": 2})
        assert broker.queues.state("slow").leased == 1
        again.ack()
        await until(lambda: ends(broker, "slow") == {"acknowledged": 3})


@pytest.mark.slow
async def test_extend_puts_the_deadline_off(broker: Broker) -> None:
    async with client(broker) as us, us.queue("second") as queue:
        await publish(us, "x", topic="second/a")
        message = await anext(queue)
        message.extend(5)
        await asyncio.sleep(1.3)
        assert not len(queue)
        message.ack()
        await until(lambda: ends(broker, "second") == {"acknowledged": 1})
        assert broker.queues.state("second").attempts == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_handlers_run_some_at_a_time_longer_than_the_deadline(broker: Broker, kind: str) -> None:
    running, most, seen = 0, 0, []

    def begin(message: QueueMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        seen.append(message.payload)

    def end() -> None:
        nonlocal running
        running -= 1

    def takes_s(message: QueueMessage) -> float:
        return 1.3 if message.payload == b"1" else 0.1

    async def handle(message: QueueMessage) -> None:
        begin(message)
        await asyncio.sleep(takes_s(message))
        end()

    def block(message: QueueMessage) -> None:
        begin(message)
        time.sleep(takes_s(message))
        end()

    async with client(broker) as us:
        queue = us.queue("second")
        work = asyncio.create_task(queue.run(handle if kind == "coroutine" else block, concurrency=3, extend_by=1.0))
        await publish(us, *"123456", topic="second/a")
        await until(lambda: ends(broker, "second") == {"acknowledged": 6})
        queue.stop()
        await work
    assert most == 3
    assert sorted(seen) == [b"1", b"2", b"3", b"4", b"5", b"6"], "none came twice"
    assert broker.queues.state("second").attempts == 6


async def test_a_handler_that_raises_refuses_its_message(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    async def handle(message: QueueMessage) -> None:
        raise RuntimeError("not today")

    async with client(broker) as us:
        await publish(us, "x", topic="once/a")
        queue = us.queue("once")
        work = asyncio.create_task(queue.run(handle))
        await until(lambda: ends(broker, "once") == {"dead_lettered": 1})
        queue.stop()
        await work
    assert "not today" in caplog.text


async def test_stopping_finishes_what_runs_and_gives_back_the_others(broker: Broker) -> None:
    started = asyncio.Event()
    handled = []

    async def handle(message: QueueMessage) -> None:
        started.set()
        await asyncio.sleep(0.1)
        handled.append(message.payload)

    async with client(broker) as us, client(broker) as other:
        await publish(us, "1", "2", "3", topic="slow/a")
        queue = us.queue("slow")
        work = asyncio.create_task(queue.run(handle))
        await started.wait()
        await until(lambda: len(queue) == 2)
        queue.stop()
        await work
        assert handled == [b"1"]
        async with other.queue("slow") as rest:
            left = [await anext(rest), await anext(rest)]
            assert sorted((each.payload, each.attempt) for each in left) == [(b"2", 2), (b"3", 2)]
            assert ends(broker, "slow") == {"acknowledged": 1}


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_handlers_that_take_too_long_are_cancelled_and_their_messages_given_back(
    broker: Broker, how: str
) -> None:
    started = asyncio.Event()

    async def handle(message: QueueMessage) -> None:
        started.set()
        await asyncio.sleep(60)

    async with client(broker) as us, client(broker) as other:
        await publish(us, "1", topic="slow/a")
        queue = us.queue("slow")
        work = asyncio.create_task(queue.run(handle, stop_timeout=0.05))
        await started.wait()
        if how == "timeout":
            queue.stop()
            await work
        else:
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        async with other.queue("slow") as rest:
            message = await anext(rest)
            assert message.attempt == 2


async def test_a_message_is_acknowledged_although_its_connection_was_lost(broker: Broker) -> None:
    lost = asyncio.Event()

    def on_lost(_error: MqttError, _delay: float) -> None:
        lost.set()

    async with client(broker, client_id="worker", on_connection_lost=on_lost) as us, us.queue("slow") as queue:
        await publish(us, "1", "2", topic="slow/a")
        message = await anext(queue)
        await until(lambda: len(queue) == 1)
        assert broker.admin.kick("worker")
        await lost.wait()
        message.ack()
        assert not len(queue), "the broker delivers it again"
        second = await anext(queue)
        if second.payload == b"1":  # it came before the acknowledgement
            second = await anext(queue)
        assert (second.payload, second.attempt) == (b"2", 2)
        await until(lambda: ends(broker, "slow") == {"acknowledged": 1})
        second.ack()
        await until(lambda: ends(broker, "slow") == {"acknowledged": 2})


async def test_a_kept_session_gives_a_queue_again_what_was_not_acknowledged_in_a_former_life(broker: Broker) -> None:
    kept: dict[str, object] = {"client_id": "w", "clean_start": False, "session_expiry_interval": 60}
    async with client(broker) as other:
        await publish(other, *map(str, range(5)))
    async with client(broker, reconnect=False, **kept) as us:
        queue = us.queue("q")
        for _ in range(5):
            await anext(queue)
        assert broker.admin.kick("w")
        await until(lambda: not us.connected)
    async with client(broker, **kept) as us:
        await until(lambda: len(us._line.session._held) == 5)
        async with asyncio.timeout(PATIENCE_S), us.queue("q") as queue:
            got = [await anext(queue) for _ in range(5)]
            assert sorted(each.payload for each in got) == [b"0", b"1", b"2", b"3", b"4"]
            assert all(each.ack() for each in got)
            await until(lambda: ends(broker) == {"acknowledged": 5})
        assert not len(us.messages)


async def test_a_queue_that_is_not_there_is_said_so_and_may_be_asked_again(broker: Broker) -> None:
    async with client(broker) as us:
        queue = us.queue("none")
        with pytest.raises(SubscribeRefused, match="no queue 'none'"):
            await anext(queue)
        broker.queues.create(queue_of("none"))
        await publish(us, "x", topic="none/a")
        assert (await anext(queue)).payload == b"x"


async def test_a_subscriber_that_is_cancelled_loses_nothing(broker: Broker) -> None:
    async with client(broker) as us:
        await publish(us, "x", topic="slow/a")
        queue = us.queue("slow")
        waiting = asyncio.ensure_future(anext(queue))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: len(queue) == 1)
        assert not len(us.messages)
        message = await anext(queue)
        assert message.attempt == 1
        queue.stop()
        queue.stop()
        message.ack()
        await until(lambda: ends(broker, "slow") == {"acknowledged": 1})


async def test_the_first_consumer_may_make_the_queue(broker: Broker) -> None:
    said = {"max-attempts": "3", "filter": "payload > 1"}
    async with client(broker) as us, us.queue("mine", "new/#", options=said) as queue:
        await publish(us, "1", "2", topic="new/a")
        message = await anext(queue)
        assert message.payload == b"2"
        message.ack()
        options = broker.queues.options("mine")
        assert (options.filters, options.max_attempts, options.filter) == (("new/#",), 3, "payload > 1")


async def test_iteration_ends_with_the_client(broker: Broker) -> None:
    async with client(broker) as us:
        queue = us.queue("q")
        work = asyncio.create_task(queue.run(print))
        await publish(us, "x")
        await until(lambda: ends(broker) == {"acknowledged": 1})
    async with asyncio.timeout(PATIENCE_S):
        await work
    assert [message async for message in queue] == []


async def test_a_connection_that_is_lost_for_good_is_raised(broker: Broker) -> None:
    async with client(broker, client_id="worker", reconnect=False) as us:
        queue = us.queue("q")
        work = asyncio.create_task(queue.run(print))
        await publish(us, "x")
        await until(lambda: ends(broker) == {"acknowledged": 1})
        assert broker.admin.kick("worker")
        with pytest.raises(MqttError):
            await work
        with pytest.raises(MqttError):
            await anext(queue)


@pytest.mark.long
async def test_an_idempotent_handler_handles_what_comes_twice_once(broker: Broker) -> None:
    handled: list[bytes] = []

    async def handle(message: QueueMessage) -> None:
        handled.append(message.payload)
        await until(lambda: broker.queues.state("brief").attempts > 1)

    async with client(broker) as us:
        queue = us.queue("brief")
        work = asyncio.create_task(queue.run(IdempotentHandler(handle), concurrency=5, extend_by=60))
        await publish(us, "x", topic="brief/a")
        await until(lambda: ends(broker, "brief") == {"acknowledged": 1})
        queue.stop()
        await work
    assert handled == [b"x"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda us: us.queue("a#b"), "is not valid"),
        (lambda us: us.queue("q").run(print, concurrency=0), "concurrency is 0"),
        (lambda us: us.queue("q").run(print, extend_by=0), "extend_by is 0"),
        (lambda us: us.queue("q").run(print, nack_delay=-1), "nack_delay is -1"),
    ],
)
async def test_wrong_arguments_are_named(broker: Broker, wrong: object, text: str) -> None:
    async with client(broker) as us:
        with pytest.raises(ValueError, match=text):
            await wrong(us)  # type: ignore[operator]
