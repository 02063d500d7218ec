"""Each library over each of its transports, feature by feature; what it cannot do is in docs/reference/interop.md.

A row is `library-version-transport`. The other end is paho over TCP, unless a test is about both ends. The quick suite
has the rows over TCP: one is quick, all of them are not.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from tests.interop.peers import FEATURES, KINDS, ONLY_5, Agent, Kind, Message, MqttJsPeer, OurPeer, PahoPeer, Peer
from tests.interop.support import Line, RunningBroker, Wire
from tests.support.rounds import todays

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "interop.md"
PAYLOAD = b"gr\xc3\xbc\xc3\x9fe"


def row(kind: Kind, transport: str) -> object:
    return pytest.param(kind, transport, id=f"{kind}-{transport}", marks=() if transport == "tcp" else pytest.mark.slow)


def able(feature: str) -> pytest.MarkDecorator:
    """A row for every client that can, over TCP, and over one of its other transports each day."""
    able_kinds = [kind for kind in KINDS if kind.can(feature)]
    over_tcp = [(kind, transport) for kind in able_kinds for transport in kind.transports if transport == "tcp"]
    others = [(kind, transport) for kind in able_kinds for transport in kind.transports if transport != "tcp"]
    rows = [row(kind, transport) for kind, transport in (*over_tcp, *todays(others, 3))]
    return pytest.mark.parametrize(("kind", "transport"), rows)


@pytest.fixture(autouse=True)
def _agent(request: pytest.FixtureRequest) -> None:
    """Node, for the rows that need it."""
    named = request.node.callspec.params.get("kind") if hasattr(request.node, "callspec") else None
    if named is None or named.library == "MQTT.js":
        MqttJsPeer.agent = request.getfixturevalue("agent")


@pytest.fixture
def line(broker: RunningBroker, transport: str) -> Line:
    found: Line = getattr(broker, transport)
    return found


@pytest.fixture
async def far(broker: RunningBroker) -> AsyncIterator[Peer]:
    """The other end."""
    async with PahoPeer(broker.tcp, "far") as far:
        yield far


@able("QoS")
async def test_messages_of_every_qos_arrive_as_they_were_sent_in_both_directions(
    kind: Kind, line: Line, far: Peer
) -> None:
    messages = [Message(topic="m/b", payload=PAYLOAD + b" %d" % qos, qos=qos) for qos in (0, 1, 2)]
    async with kind.make(line, "near") as near:
        await near.subscribe("m/+", qos=2)
        await far.subscribe("m/#", qos=2)
        for writer in (near, far):
            for message in messages:
                await writer.publish(message)
                for reader in (near, far):
                    assert await reader.next() == message


@able("retained")
async def test_a_retained_message_waits_for_its_subscribers_until_it_is_cleared(
    kind: Kind, line: Line, far: Peer
) -> None:
    async with kind.make(line, "near") as near:
        kept = Message(topic="m/light", payload=b"on", qos=1, retain=True)
        await near.publish(kept)
        await near.subscribe("m/light", qos=1)
        await far.subscribe("m/light", qos=1)
        assert [await near.next(), await far.next()] == [kept, kept]
        await near.publish(Message(topic="m/light", qos=1, retain=True))
        await near.publish(Message(topic="m/light", payload=b"end", qos=1))
        assert await near.until(b"end") == [b""]
    async with kind.make(line, "late") as late:
        await late.subscribe("m/light", qos=1)
        await far.publish(Message(topic="m/light", payload=b"end", qos=1))
        assert await late.until(b"end") == []


@able("will")
async def test_the_will_of_a_client_that_says_goodbye_is_published_only_if_it_asks_for_that(
    kind: Kind, line: Line, far: Peer
) -> None:
    await far.subscribe("m/#", qos=1)
    async with kind.make(line, "polite", will=Message(topic="m/polite", payload=b"gone")) as polite:
        await polite.subscribe("n", qos=0)
    asks_for_it = kind.library == "mosquitto" and kind.version == "5.0"  # Disconnect with Will Message, when terminated
    if asks_for_it:
        assert (await far.next()).topic == "m/polite"
    await far.publish(Message(topic="m/end", payload=b"end", qos=1))
    assert await far.until(b"end") == []


@able("will")
async def test_the_will_of_a_client_whose_connection_breaks_is_published(
    kind: Kind, line: Line, broker: RunningBroker, far: Peer
) -> None:
    await far.subscribe("m/#", qos=1)
    will = Message(topic="m/lost", payload=b"gone", qos=1, retain=True)
    with Wire(broker, line) as wire:
        lost = kind.make(wire.line, "lost", will=will)
        await lost.connect()
        await lost.subscribe("n", qos=0)
        await asyncio.to_thread(wire.cut)
        message = await far.next()
        with contextlib.suppress(Exception):  # what a library says of its own end is not the matter here
            await lost.disconnect()
    assert (message.topic, message.payload, message.qos) == ("m/lost", b"gone", 1)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
@pytest.mark.parametrize("transport", ["tcp", "tls", "ws", "wss"])
async def test_the_will_of_a_killed_process_is_published(node: str, line: Line, version: str, far: Peer) -> None:
    await far.subscribe("m/#", qos=1)
    agent = Agent(node)
    lost = MqttJsPeer(line, "lost", version, will=Message(topic="m/lost", payload=b"gone", qos=1))
    lost.agent = agent
    try:
        await lost.connect()
    finally:
        agent.kill()
        agent.close()
    assert await far.take(1) == [b"gone"]


@able("resume")
async def test_a_session_that_is_resumed_brings_what_was_queued_in_order(kind: Kind, line: Line, far: Peer) -> None:
    async with kind.make(line, "sleeper", keep_session=True) as sleeper:
        assert not sleeper.session_present
        await sleeper.subscribe("m/+", qos=2)
    sent = [Message(topic=f"m/{1 + number % 2}", payload=b"%d" % number, qos=1 + number % 2) for number in range(20)]
    for message in sent:
        await far.publish(message)
    async with kind.make(line, "sleeper", keep_session=True) as sleeper:
        assert sleeper.session_present in (True, None)
        if kind.library == "mosquitto":  # connects to subscribe
            await sleeper.subscribe("m/+", qos=2)
        got = [await sleeper.next() for _ in sent]
        for qos in (1, 2):  # most libraries hand on QoS 2 when it is released, behind QoS 1 that came later
            assert [message for message in got if message.qos == qos] == sent[qos - 1 :: 2]


@able("resume")
async def test_no_message_of_qos_1_is_lost_when_the_connection_breaks_while_they_come(
    kind: Kind, line: Line, broker: RunningBroker, far: Peer
) -> None:
    sent = [b"%d" % number for number in range(100)]

    async def publish() -> None:
        for payload in sent:
            await far.publish(Message(topic="m/x", payload=payload, qos=1))

    with Wire(broker, line) as wire:
        sleeper = kind.make(wire.line, "sleeper", keep_session=True)
        await sleeper.connect()
        await sleeper.subscribe("m/x", qos=1)
        publishing = asyncio.create_task(publish())
        got = await sleeper.take(30)
        await asyncio.to_thread(wire.cut)
        with contextlib.suppress(Exception):  # what a library says of its own end is not the matter here
            await sleeper.disconnect()
        got += sleeper.rest()
    await publishing
    async with kind.make(line, "sleeper", keep_session=True) as sleeper:
        if kind.library == "mosquitto":  # connects to subscribe
            await sleeper.subscribe("m/x", qos=1)
        while sent[-1] not in got:
            got += await sleeper.take(1)
    assert list(dict.fromkeys(got)) == sent  # each once or more, in order


@able("properties")
async def test_properties_arrive_as_they_were_sent_in_both_directions(kind: Kind, line: Line, far: Peer) -> None:
    rich = Message(
        topic="m/rich",
        payload=b"text",
        qos=1,
        content_type="text/plain",
        response_topic="answers/1",
        correlation_data=b"seven",
        user_properties=(("a", "1"), ("a", "2"), ("b", "3")),
    )
    async with kind.make(line, "near") as near:
        await near.subscribe("m/rich", qos=1)
        await far.subscribe("m/rich", qos=1)
        for writer in (near, far):
            await writer.publish(rich)
            assert [await near.next(), await far.next()] == [rich, rich]


@able("request")
@pytest.mark.parametrize("responder", [PahoPeer, OurPeer], ids=["paho-answers", "we-answer"])
async def test_a_request_is_answered_where_it_asks_to_be(
    kind: Kind, line: Line, broker: RunningBroker, responder: type[Peer]
) -> None:
    question = Message(
        topic="m/questions", payload=b"6 * 7", qos=1, response_topic="m/answers/near", correlation_data=b"7"
    )
    async with responder(broker.tcp, "responder") as other, kind.make(line, "near") as near:
        await other.subscribe("m/questions", qos=1)
        asked = asyncio.create_task(near.ask(question))
        got = await other.next()
        assert got == question
        assert got.response_topic is not None
        answer = Message(topic=got.response_topic, payload=b"42", qos=1, correlation_data=got.correlation_data)
        await other.publish(answer)
        answered = await asked
        assert (answered.topic, answered.payload, answered.correlation_data) == ("m/answers/near", b"42", b"7")


@able("request")
async def test_a_request_is_answered_by_every_client(kind: Kind, line: Line, far: Peer) -> None:
    async with kind.make(line, "near") as near:
        await near.subscribe("m/questions", qos=1)
        question = Message(topic="m/questions", qos=1, response_topic="m/answers/far", correlation_data=b"7")
        asked = asyncio.create_task(far.ask(question))
        got = await near.next()
        assert got.response_topic == "m/answers/far"
        await near.publish(
            Message(topic=got.response_topic, payload=b"42", qos=1, correlation_data=got.correlation_data)
        )
        answered = await asked
        assert (answered.payload, answered.correlation_data) == (b"42", b"7")


@able("shares")
async def test_a_shared_subscription_gives_each_message_to_one(kind: Kind, line: Line, far: Peer) -> None:
    async with kind.make(line, "left") as left, kind.make(line, "right") as right:
        done = await work_of([left, right], far)
        assert all(done)


async def test_clients_of_every_library_and_transport_share_one_subscription(broker: RunningBroker, far: Peer) -> None:
    async with contextlib.AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(kind.make(getattr(broker, transport), f"{kind}-{transport}"))
            for kind in KINDS
            for transport in kind.transports
        ]
        done = await work_of(members, far)
        assert [len(jobs) for jobs in done] == [4] * len(members)


async def work_of(members: list[Peer], far: Peer) -> list[list[bytes]]:
    """Four jobs per member; who did which, when each was done by one."""
    for member in members:
        await member.subscribe("$share/workers/m/jobs", "m/evening", qos=1)
    jobs = [b"%d" % number for number in range(4 * len(members))]
    for job in jobs:
        await far.publish(Message(topic="m/jobs", payload=job, qos=1))
    await far.publish(Message(topic="m/evening", payload=b"end", qos=1))
    done = [await member.until(b"end") for member in members]
    assert sorted((job for own in done for job in own), key=int) == jobs
    return done


@able("alias_sent")
async def test_a_topic_alias_of_a_client_stands_for_its_topic(kind: Kind, line: Line, far: Peer) -> None:
    await far.subscribe("m/#", qos=1)
    async with kind.make(line, "near") as near:
        message = Message(topic="m/long/topic", payload=b"x", qos=1)
        await near.publish_by_alias(message)
        assert [await far.next(), await far.next()] == [message, message]


@able("alias_taken")
async def test_a_topic_alias_of_ours_is_understood(kind: Kind, line: Line, far: Peer) -> None:
    async with kind.make(line, "near", takes_aliases=True) as near:
        await near.subscribe("m/#", qos=1)
        sent = [Message(topic=f"m/{number % 3}", payload=b"%d" % number, qos=1) for number in range(9)]
        for message in sent:
            await far.publish(message)
        got = [await near.next() for _ in sent]
        assert got == sent
        assert {message.alias for message in got[-3:]} == {1, 2, 3}


@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        row(kind, transport)
        for kind in KINDS
        if kind.peer is MqttJsPeer and kind.can("alias_sent")
        for transport in kind.transports
    ],
)
async def test_the_topic_aliases_that_a_client_gives_by_itself_stand_for_their_topics(
    kind: Kind, line: Line, far: Peer
) -> None:
    await far.subscribe("m/#", qos=1)
    near = MqttJsPeer(line, "near", kind.version)
    near.auto_alias = True
    async with near:
        topics = [f"m/{number % 3}" for number in range(9)] + [f"m/{number}" for number in range(100)]
        sent = [Message(topic=topic, payload=b"%d" % number, qos=1) for number, topic in enumerate(topics)]
        for message in sent:
            await near.publish(message)
        assert [await far.next() for _ in sent] == sent
        first, again = topics[:3], topics[12:]  # the hundred are more than there are aliases: those are given anew
        assert await near.topics_sent() == [*first, *[""] * 9, *again]


# the page in the documentation


def table() -> Iterable[str]:
    """What each client can, as the page has it."""
    yield "| Client | MQTT | " + " | ".join((*("TCP", "TLS", "WebSocket"), *FEATURES.values())) + " |"
    yield "|---" * (5 + len(FEATURES)) + "|"
    for kind in KINDS:
        ways = [transport in kind.transports for transport in ("tcp", "tls", "ws")]
        assert ("ws" in kind.transports) == ("wss" in kind.transports)
        cells = ["yes" if way else "no" for way in ways]
        cells += [
            "yes" if kind.can(feature) else "5.0" if kind.version == "3.1.1" and feature in ONLY_5 else "no"
            for feature in FEATURES
        ]
        yield f"| {kind.library} | {kind.version} | " + " | ".join(cells) + " |"


def test_the_page_says_what_is_tested() -> None:
    assert "\n".join(table()) in PAGE.read_text()
