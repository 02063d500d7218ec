"""`Client.request` and `@client.responder` against a broker: each request gets its own answer, or hears why not."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from mqttlite.client import (
    AnswerTimeout,
    Client,
    ClientClosed,
    Message,
    NoResponder,
    Properties,
    PublishRefused,
    RequestFailed,
    SubscribeRefused,
)
from mqttlite.client.requests import MAX_IDLE_TOPICS
from mqttlite.config import Config, ListenerOptions
from mqttlite.server import Broker

PATIENCE_S = 30.0


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(Config(listeners=(ListenerOptions(port=0),))) as running:
        yield running


def client(broker: Broker, **options: object) -> Client:
    given = {"timeout": PATIENCE_S, "min_reconnect_delay": 0.01} | options
    return Client("127.0.0.1", broker.port, **given)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def filters(broker: Broker, us: Client) -> list[str]:
    """To which a client is subscribed."""
    details = broker.admin.client(us.client_id)
    assert details is not None
    return list(details.topic_filters)


def doubling(us: Client, **options: object) -> list[Message]:
    """Answer requests to `double/…`; the requests that came."""
    came: list[Message] = []

    @us.responder("double/+", **options)  # type: ignore[arg-type]
    async def double(request: Message) -> int:
        came.append(request)
        return 2 * int(request.payload)

    return came


@pytest.mark.long
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_thousand_requests_at_once_get_their_own_answers_by_one_subscription(broker: Broker, qos: int) -> None:
    answering, asking = client(broker), client(broker)
    doubling(answering, qos=qos)
    async with answering, asking:
        answers = await asyncio.gather(*[asking.request(f"double/{n % 7}", n, qos) for n in range(1000)])
        assert [int(each.payload) for each in answers] == [2 * n for n in range(1000)]
        assert len(filters(broker, asking)) == 1
        assert not len(asking.messages)
        assert not len(answering.messages)


async def test_an_answer_has_the_qos_of_the_request_and_its_properties_stay(broker: Broker) -> None:
    answering, asking = client(broker), client(broker)
    came = doubling(answering)
    async with answering, asking:
        given = Properties(content_type="text/plain", user_properties=[("a", "b")])
        answer = await asking.request("double/x", "21", 1, properties=given, timeout=29.5)
    assert (answer.payload, answer.qos) == (b"42", 1)
    (request,) = came
    assert request.properties.content_type == "text/plain"
    assert request.properties.user_properties == [("a", "b")]
    assert request.properties.message_expiry_interval in (29, 30)
    assert request.properties.response_topic == answer.topic
    assert (request.properties.correlation_data or b"").decode().isprintable(), "a responder in a shell can repeat it"


async def test_a_request_without_a_responder_fails_at_once(broker: Broker) -> None:
    async with client(broker) as us:
        with pytest.raises(NoResponder, match="Nobody is subscribed to 'double/x'"):
            await us.request("double/x", "1")


async def test_a_request_that_is_not_answered_times_out_and_its_late_answer_is_dropped(broker: Broker) -> None:
    answering, asking = client(broker), client(broker)
    late = asyncio.Event()

    @answering.responder("slow")
    async def slow(request: Message) -> bytes:
        if request.payload == b"first":
            await late.wait()
        return request.payload

    async with answering, asking:
        with pytest.raises(AnswerTimeout, match=r"The request to 'slow' was not answered within 0\.1 s"):
            await asking.request("slow", "first", timeout=0.1)
        late.set()
        assert (await asking.request("slow", "second")).payload == b"second"
        assert not len(asking.messages)


async def test_clients_with_one_topic_for_answers_get_their_own(broker: Broker) -> None:
    answering, first, second = client(broker), client(broker), client(broker)
    doubling(answering)
    async with answering, first, second:
        for at in range(4):  # from the second round on, both are subscribed to the topic
            asked = [us.request("double/x", at + more, reply_to="answers") for us, more in ((first, 10), (second, 70))]
            answers = await asyncio.gather(*asked)
            assert [int(each.payload) for each in answers] == [2 * (at + 10), 2 * (at + 70)]


async def test_a_handler_says_why_it_fails_and_hides_its_own_faults(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    answering, asking = client(broker), client(broker)

    @answering.responder("divide")
    def divide(request: Message) -> float:
        if not request.payload:
            raise RequestFailed("give a number")
        return 1 / int(request.payload)

    async with answering, asking:
        assert (await asking.request("divide", "4")).payload == b"0.25"
        with pytest.raises(RequestFailed, match=r"^give a number$"):
            await asking.request("divide")
        with pytest.raises(RequestFailed, match=r"^the responder failed$"):
            await asking.request("divide", "0")
    assert "A request at divide was not answered" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_a_responder_of_a_connected_client_answers_and_one_that_is_refused_ends_it(broker: Broker) -> None:
    async with client(broker) as answering, client(broker) as asking:
        came = doubling(answering)
        await until(lambda: filters(broker, answering) == ["double/+"])
        assert (await asking.request("double/x", "4")).payload == b"8"
        assert len(came) == 1
        answering.responder("$queue/none/$ack")(lambda request: request.payload)
        with pytest.raises(SubscribeRefused):
            await anext(answering.messages)


async def test_entering_a_client_raises_what_refuses_its_responder(broker: Broker) -> None:
    us = client(broker)
    us.responder("$queue/none/$ack")(lambda request: request.payload)
    with pytest.raises(SubscribeRefused):
        async with us:
            pass
    assert not us.connected


async def test_a_request_is_acknowledged_after_its_answer_and_comes_again_if_it_had_none(broker: Broker) -> None:
    first = client(broker, client_id="r", session_expiry_interval=60)
    stuck = asyncio.Event()

    @first.responder("work")
    async def hang(request: Message) -> bytes:
        stuck.set()
        await asyncio.Event().wait()
        return b""

    async with client(broker) as asking:
        async with first:
            asked = asyncio.create_task(asking.request("work", "x"))
            await stuck.wait()
        second = client(broker, client_id="r", clean_start=False, session_expiry_interval=60)
        second.responder("work")(lambda request: request.payload + b"!")
        async with second:
            assert (await asked).payload == b"x!"


async def test_responders_of_a_share_divide_the_requests(broker: Broker) -> None:
    one, two, asking = client(broker), client(broker), client(broker)
    counts = [0, 0]

    def counting(at: int) -> Callable[[Message], bytes]:
        def count(request: Message) -> bytes:
            counts[at] += 1
            return request.payload

        return count

    one.responder("$share/g/echo")(counting(0))
    two.responder("$share/g/echo")(counting(1))
    async with one, two, asking:
        for n in range(20):
            assert (await asking.request("echo", n)).payload == str(n).encode()
    assert sum(counts) == 20
    assert min(counts) >= 5


async def test_a_message_that_asks_for_no_answer_is_handled_and_not_answered(broker: Broker) -> None:
    answering = client(broker)
    came = doubling(answering)
    async with answering, client(broker) as us:
        await us.subscribe("#")
        await us.publish("double/x", "1", 1)
        await until(lambda: len(came) == 1)
        assert (await anext(us.messages)).topic == "double/x"
        assert not len(us.messages)


async def test_a_request_whose_answer_has_no_topic_by_an_error_is_acknowledged(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    answering = client(broker, receive_maximum=1)
    came = doubling(answering, reply_to=lambda request: {"double/b": "answers"}[request.topic])
    async with asyncio.timeout(PATIENCE_S), answering, client(broker) as us:
        await us.subscribe("answers")
        await us.publish("double/a", "1", 1)
        await us.publish("double/b", "2", 1)
        assert (await anext(us.messages)).payload == b"4"
    assert len(came) == 2
    assert "The answer to a request at double/a was not sent: 'double/a'" in caplog.text


async def test_at_most_so_many_are_answered_at_a_time(broker: Broker) -> None:
    answering, asking = client(broker), client(broker)
    running = highest = 0

    @answering.responder("work", concurrency=3)
    async def work(request: Message) -> bytes:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(0.01)
        running -= 1
        return b""

    async with answering, asking:
        await asyncio.gather(*[asking.request("work") for _ in range(12)])
    assert highest == 3


@pytest.mark.long
async def test_a_responder_that_is_behind_holds_the_socket_and_loses_nothing(broker: Broker) -> None:
    answering, asking = client(broker, max_queued_messages=10), client(broker)

    @answering.responder("work", concurrency=2)
    async def work(request: Message) -> bytes:
        await asyncio.sleep(0.002)
        return request.payload

    async with answering, asking:
        answers = await asyncio.gather(*[asking.request("work", n) for n in range(100)])
    assert [int(each.payload) for each in answers] == list(range(100))


async def test_a_client_that_ends_fails_the_requests_that_wait(broker: Broker) -> None:
    answering, asking = client(broker), client(broker)

    came: list[Message] = []

    @answering.responder("never")
    async def never(request: Message) -> None:
        came.append(request)
        await asyncio.Event().wait()

    async with answering:
        async with asking:
            asked = asyncio.create_task(asking.request("never"))
            await until(lambda: bool(came))
        with pytest.raises(ClientClosed):
            await asked


async def test_requests_go_on_after_a_connection_is_lost(broker: Broker) -> None:
    answering, asking = client(broker), client(broker)
    doubling(answering)
    async with answering, asking:
        assert (await asking.request("double/x", "1")).payload == b"2"
        broker.admin.kick(asking.client_id)
        assert (await asking.request("double/x", "2")).payload == b"4"


# 3.1.1


async def test_with_3_1_1_both_sides_know_the_topic_of_the_answer(broker: Broker) -> None:
    answering, asking = client(broker, version="3.1.1"), client(broker, version="3.1.1")
    doubling(answering, reply_to=lambda request: f"answers/{request.topic}")
    async with answering, asking:
        for n in range(3):
            answer = await asking.request("double/x", n, reply_to="answers/double/x")
            assert answer.payload == str(2 * n).encode()
        both = await asyncio.gather(
            asking.request("double/a", 1, reply_to="answers/double/a"),
            asking.request("double/b", 2, reply_to="answers/double/b"),
        )
        assert [each.payload for each in both] == [b"2", b"4"]
        waiting = asyncio.create_task(asking.request("nobody", reply_to="answers/c"))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="a request waits at 'answers/c'"):
            await asking.request("nobody", reply_to="answers/c")
        waiting.cancel()
        with pytest.raises(ValueError, match=r"reply_to: a message of 3\.1\.1"):
            await asking.request("double/x", 1)


@pytest.mark.long
async def test_topics_for_answers_that_are_idle_are_unsubscribed_from(broker: Broker) -> None:
    answering, asking = client(broker), client(broker)
    doubling(answering)
    async with answering, asking:
        for n in range(3 * MAX_IDLE_TOPICS):
            await asking.request("double/x", n, reply_to=f"answers/{n}")
        await until(lambda: len(filters(broker, asking)) == MAX_IDLE_TOPICS)
        assert (await asking.request("double/x", 5, reply_to="answers/0")).payload == b"10"


# what is refused


async def test_a_request_that_the_broker_refuses_raises_at_once(broker: Broker) -> None:
    async with client(broker) as us:
        started = time.monotonic()
        with pytest.raises(PublishRefused):
            await us.request("$stream/none", "x")
        assert time.monotonic() - started < PATIENCE_S / 2


async def test_properties_that_the_client_sets_are_refused(broker: Broker) -> None:
    async with client(broker) as us:
        with pytest.raises(ValueError, match="reply_to names another topic"):
            await us.request("a", properties=Properties(response_topic="b"))
        with pytest.raises(ValueError, match="wildcard"):
            await us.request("a", reply_to="answers/#")
        with pytest.raises(ValueError, match="concurrency is 0"):
            us.responder("a", concurrency=0)(lambda request: None)
        with pytest.raises(ValueError, match="qos is 3"):
            us.responder("a", qos=3)
