"""`Client.stream` and `Client.group` against a broker: read to the end, follow, share, commit, stop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest

from mqttlite.client import (
    Client,
    FilterError,
    MqttError,
    Properties,
    PublishRefused,
    StreamMessage,
    StreamReading,
    SubscribeRefused,
)
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.service import Streams
from mqttlite.server import Broker

PATIENCE_S = 60.0
STREAMS = (StreamOptions(name="s", filters=("a/#",), partitions=3), StreamOptions(name="one", partitions=1))


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(Config(listeners=(ListenerOptions(port=0),), streams=STREAMS)) as running:
        yield running


def client(broker: Broker, **options: object) -> Client:
    return Client("127.0.0.1", broker.port, min_reconnect_delay=0.01, **options)  # type: ignore[arg-type]


def streams(broker: Broker) -> Streams:
    found = broker._assembly.streams
    assert found is not None
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def append(us: Client, *payloads: str, topic: str = "$stream/one", key: str = "") -> None:
    properties = Properties(user_properties=[("ordering-key", key)]) if key else None
    for each in payloads:
        await us.publish(topic, each, 1, properties=properties)


async def texts(reading: StreamReading) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        return [each.payload.decode() async for each in reading]


def positions(broker: Broker) -> list[int]:
    (group,) = streams(broker).groups("one")
    return group.positions


async def test_a_message_says_where_it_is(broker: Broker) -> None:
    async with client(broker) as us:
        lie = [("stream-offset", "9"), ("stream-end", "0:9"), ("ordering-key", "k")]
        await us.publish("$stream/one", "x", 1, properties=Properties(user_properties=lie))
        await us.publish("$stream/one", "y", 1)
        await append(us, "z", topic="a/b")
        first, second = [each async for each in us.stream("one").read()]
        assert (first.stream, first.partition, first.offset, first.payload) == ("one", 0, 0, b"x")
        assert (first.topic, first.key, second.key, first.skipped) == ("$stream/one", "k", "", 0)
        assert first.message_id.isdecimal()
        assert first.publish_time is not None
        assert abs(first.publish_time - datetime.now(UTC)) < timedelta(minutes=1)
        assert not first.commit(), "it is of no group"
        assert repr(first) == "StreamMessage(one@0:0, topic='$stream/one')"
        (third,) = [each async for each in us.stream("s").read()]
        assert (third.key, third.topic) == ("a/b", "a/b")


async def test_a_reading_ends_with_the_stream_and_begins_where_it_is_told(broker: Broker) -> None:
    async with client(broker, receive_maximum=7) as us:
        stream = us.stream("s")
        assert await texts(stream.read()) == []
        for at in range(50):
            await append(us, str(at), topic="a/b", key=str(at))
        assert sorted(map(int, await texts(stream.read()))) == list(range(50))
        assert await texts(stream.read("latest")) == []
        assert await texts(stream.read(datetime.now(UTC) + timedelta(hours=1))) == []
        assert len(await texts(stream.read(datetime.now(UTC) - timedelta(hours=1)))) == 50
        assert await texts(us.stream("s", "a/c").read()) == []
        assert await texts(stream.read(where="payload = 7")) == ["7"]
        async with stream.read(follow=True) as reading:
            for _ in range(20):
                await anext(reading)
            stored = reading.positions
        await append(us, "new", topic="a/b")
        rest = await texts(stream.read(stored))
        assert len(rest) == 31
        assert "new" in rest


async def test_a_reading_follows_until_it_is_stopped(broker: Broker) -> None:
    async with client(broker) as us, us.stream("one").read(follow=True) as reading:
        for at in range(3):
            await append(us, str(at))
            assert (await anext(reading)).payload == str(at).encode()
        reading.stop()
        with pytest.raises(StopAsyncIteration):
            await anext(reading)
        await until(lambda: streams(broker).readers("one") == [])


@pytest.mark.long
@pytest.mark.parametrize("keeps_session", [False, True])
@pytest.mark.parametrize("since", ["earliest", "latest"])
async def test_a_reading_has_no_gap_and_nothing_twice_where_connections_are_lost(
    broker: Broker, since: str, keeps_session: bool
) -> None:
    options = {"clean_start": False, "session_expiry_interval": 60} if keeps_session else {}
    async with (
        client(broker) as other,
        client(broker, client_id="r", **options) as us,
        us.stream("s").read(since, follow=True) as reading,  # type: ignore[arg-type]
    ):
        found = []
        sent = 0
        for _round in range(4):
            for _ in range(20):
                await append(other, str(sent), topic="a/b", key=str(sent))
                sent += 1
            for _ in range(15):
                found.append(int((await anext(reading)).payload))
            await asyncio.sleep(0.01)
            assert broker.admin.kick("r")
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < sent:
                found.append(int((await anext(reading)).payload))
        assert sorted(found) == list(range(sent))


async def test_a_member_commits_and_the_next_one_goes_on_there(broker: Broker) -> None:
    async with client(broker) as us:
        await append(us, "0", "1", "2")
        async with us.group("g", "one") as group:
            first = await anext(group)
            second = await anext(group)
            assert (first.offset, second.offset) == (0, 1)
            assert first.commit()
            assert not first.commit(), "once"
            await until(lambda: positions(broker) == [1])
        assert not second.commit(), "it has left"
        async with client(broker) as other, other.group("g", "one") as group:
            assert [(await anext(group)).payload for _ in range(2)] == [b"1", b"2"]
        assert positions(broker) == [1]


async def test_members_share_the_partitions(broker: Broker) -> None:
    async with (
        client(broker) as us,
        client(broker) as them,
        us.group("g", "s") as ours,
        them.group("g", "s") as theirs,
    ):
        await until(lambda: len(set(streams(broker).groups("s")[0].owners)) == 2)
        for at in range(30):
            await append(us, str(at), topic="a/b", key=str(at))
        found: list[StreamMessage] = []

        async def take(group: AsyncIterator[StreamMessage]) -> None:
            async for message in group:
                found.append(message)
                assert message.commit()

        tasks = [asyncio.create_task(take(each)) for each in (ours, theirs)]
        await until(lambda: streams(broker).groups("s")[0].lag == 0)
        assert sorted(int(each.payload) for each in found) == list(range(30))
        ours.stop()
        theirs.stop()
        await asyncio.gather(*tasks)


async def test_a_consumer_commits_what_its_handler_returned_from(broker: Broker) -> None:
    found: list[bytes] = []

    async def handle(message: StreamMessage) -> None:
        found.append(message.payload)
        if message.payload == b"1":
            group.stop()

    async with client(broker) as us:
        await append(us, "0", "1", "2")
        group = us.group("g", "one")
        await group.consume(handle)
        assert found == [b"0", b"1"]
        await until(lambda: positions(broker) == [2])
        await until(lambda: streams(broker).groups("one")[0].members == [])


async def test_a_handler_that_raises_ends_it_and_its_message_comes_again(broker: Broker) -> None:
    found: list[bytes] = []

    def handle(message: StreamMessage) -> None:
        found.append(message.payload)
        if len(found) == 2:
            raise RuntimeError("the disk is full")
        if len(found) == 4:
            raise KeyError

    async with client(broker) as us:
        await append(us, "0", "1", "2")
        with pytest.raises(RuntimeError, match="the disk is full"):
            await us.group("g", "one").consume(handle)
        with pytest.raises(KeyError):
            await us.group("g", "one").consume(handle)
        assert found == [b"0", b"1", b"1", b"2"]


async def test_a_member_gets_again_what_it_did_not_commit_on_a_lost_connection(broker: Broker) -> None:
    async with client(broker, client_id="r") as us, us.group("g", "one") as group:
        await append(us, "0", "1")
        assert (await anext(group)).commit()
        await until(lambda: positions(broker) == [1])
        lost = await anext(group)
        assert broker.admin.kick("r")
        await until(lambda: not us.connected)
        assert not lost.commit()
        again = await anext(group)
        assert (again.payload, again.offset) == (b"1", 1)
        assert again.commit()
        await until(lambda: positions(broker) == [2])


KEPT: dict[str, object] = {
    "client_id": "w",
    "clean_start": False,
    "session_expiry_interval": 60,
    "receive_maximum": 10,
}


async def read_in_a_former_life(
    broker: Broker, read: Callable[[Client], AsyncIterator[StreamMessage]], count: int
) -> None:
    """A client that ends without a word, and has a session that is kept."""
    async with client(broker, reconnect=False, **KEPT) as us:
        messages = read(us)
        for _ in range(count):
            await anext(messages)
        await asyncio.sleep(0)  # its acknowledgements leave
        assert broker.admin.kick("w")
        await until(lambda: not us.connected)


async def test_a_kept_session_gives_a_group_again_what_was_not_committed_in_a_former_life(broker: Broker) -> None:
    async with client(broker) as other:
        await append(other, *map(str, range(20)))
    await read_in_a_former_life(broker, lambda us: us.group("g", "one"), 10)
    async with client(broker, **KEPT) as us:
        await until(lambda: len(us._line.session._held) == 10)
        assert positions(broker) == [0], "nobody has handled them"
        got = []
        async with asyncio.timeout(PATIENCE_S), us.group("g", "one") as group:
            while len(got) < 20:
                message = await anext(group)
                got.append(message.offset)
                message.commit()
            await until(lambda: positions(broker) == [20])
        assert got == list(range(20))
        assert not len(us.messages)


async def test_a_reading_from_stored_positions_skips_nothing_over_a_kept_session(broker: Broker) -> None:
    async with client(broker) as other:
        await append(other, *map(str, range(40)))
    await read_in_a_former_life(broker, lambda us: us.stream("one").read({0: 0}, follow=True), 10)
    async with client(broker, **KEPT) as us, us.stream("one").read({0: 5}, follow=True) as reading:
        async with asyncio.timeout(PATIENCE_S):
            assert [(await anext(reading)).offset for _ in range(35)] == list(range(5, 40))
        assert not len(us.messages)


async def test_messages_that_nobody_reads_again_hold_up_no_others_and_end_with_their_subscription(
    broker: Broker,
) -> None:
    async with client(broker) as other:
        await append(other, *map(str, range(5)))
        await read_in_a_former_life(broker, lambda us: us.group("g", "one"), 5)
        async with client(broker, **KEPT) as us:
            await until(lambda: len(us._line.session._held) == 5)
            await us.subscribe("t", 1)
            for at in range(20):  # more than the window has
                await other.publish("t", str(at), 1)
                async with asyncio.timeout(PATIENCE_S):
                    assert (await anext(us.messages)).payload == str(at).encode()
            assert positions(broker) == [0]
            await us.unsubscribe("$share/g/$stream/one")
            assert not us._line.session._held
            await us.publish("t", "behind the acknowledgements", 1)
            assert positions(broker) == [0]


async def test_readings_that_are_over_are_forgotten(broker: Broker) -> None:
    async with client(broker) as us:
        await append(us, "x")
        for _ in range(20):
            assert await texts(us.stream("one").read()) == ["x"]
        await until(lambda: not us._line.session._readers)
        assert not us._line.session._by_identifier


async def test_a_message_is_appended_once_and_keeps_its_key(broker: Broker) -> None:
    async with client(broker) as us:
        stream = us.stream("one")
        told = Properties(content_type="text/plain", user_properties=[("a", "b")])
        for _ in range(2):
            assert (await stream.append("x", key="k", dedup_id="1", properties=told)).reason_code == 0
        (message,) = [each async for each in stream.read()]
        assert (message.key, message.payload, message.properties.content_type) == ("k", b"x", "text/plain")
        assert message.told("a") == "b"


async def test_a_result_is_appended_together_with_what_it_commits(broker: Broker) -> None:
    async with client(broker, receive_maximum=2) as us, us.group("g", "one") as group:
        await append(us, "1", "2", "3")
        await anext(group)
        second = await anext(group)
        bills = us.stream("s")
        await bills.append("1+2", commits=[second])
        assert positions(broker) == [2]
        assert (await anext(group)).payload == b"3", "both places in the window are free"
        with pytest.raises(PublishRefused, match="0:1 is finished"):
            await bills.append("1+2", commits=[second])
        async with client(broker) as other:
            (bill,) = [each async for each in other.stream("s").read()]
        assert bill.payload == b"1+2"
        with pytest.raises(ValueError, match="is of no group"):
            await bills.append("x", commits=[bill])


async def test_a_reading_is_stopped_while_it_subscribes_and_ends_with_its_client(broker: Broker) -> None:
    async with client(broker) as us:
        reading = us.stream("one").read(follow=True)
        task = asyncio.create_task(anext(reading))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        reading.stop()
        with pytest.raises((StopAsyncIteration, asyncio.CancelledError)):
            await task
        following = us.stream("one").read(follow=True)
        waiting = asyncio.create_task(texts(following))
        await until(lambda: len(streams(broker).readers("one")) == 1)
    assert await waiting == []


async def test_messages_behind_the_end_of_a_member_are_not_committed(broker: Broker) -> None:
    async with client(broker) as us:
        await append(us, *map(str, range(50)))
        group = us.group("g", "one")
        task = asyncio.create_task(anext(group))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        group.stop()  # its SUBSCRIBE may be under way
        with pytest.raises((StopAsyncIteration, asyncio.CancelledError)):
            await task
        await us.publish("other", "x", 1)
        await until(lambda: all(each.members == [] for each in streams(broker).groups("one")))
        async with us.group("g", "one") as again:
            assert (await anext(again)).payload == b"0"


async def test_wrong_uses_are_refused_with_a_sentence(broker: Broker) -> None:
    async with client(broker) as us:
        for name in ("", "a/b", "s@earliest", "#"):
            with pytest.raises(ValueError, match="is no name of a stream"):
                us.stream(name)
        with pytest.raises(ValueError, match="is not valid: a shared one is"):
            us.group("", "s")
        for since, refusal in (
            (datetime(2026, 1, 1), "without a time zone"),
            ({0: -1}, "it maps partitions to offsets"),
            ("noon", "since is 'noon': it is earliest, latest, a datetime, or offsets by partition"),
        ):
            with pytest.raises(ValueError, match=refusal):
                us.stream("s").read(since)  # type: ignore[arg-type]
        with pytest.raises(SubscribeRefused, match="there is no stream 'none'"):
            await texts(us.stream("none").read())
        with pytest.raises(SubscribeRefused, match="s has the partitions 0 to 2"):
            await texts(us.stream("s").read({3: 1}))
        with pytest.raises(FilterError):
            await texts(us.stream("s").read(where="payload =="))
        async with us.stream("s").read(follow=True):
            with pytest.raises(ValueError, match="the client reads \\$stream/s already"):
                await texts(us.stream("s").read())
    async with client(broker, version="3.1.1") as old:
        with pytest.raises(ValueError, match="streams are read so in MQTT 5\\.0 only"):
            old.stream("s")
        with pytest.raises(ValueError, match="streams are read so in MQTT 5\\.0 only"):
            old.group("g", "s")


async def test_a_connection_that_is_lost_for_good_is_raised(broker: Broker) -> None:
    async with client(broker, client_id="r", reconnect=False) as us:
        reading = us.stream("one").read(follow=True)
        waiting = asyncio.create_task(texts(reading))
        await until(lambda: len(streams(broker).readers("one")) == 1)
        assert broker.admin.kick("r")
        with pytest.raises(MqttError):
            await waiting
