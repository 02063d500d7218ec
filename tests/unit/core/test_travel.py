"""Publishers of streams follow their messages to the one worker that has all receivers, and nobody notices."""

import pytest

from mqttlite.core.connection import CLOSED, CONNECTED
from mqttlite.core.forwards import NOWHERE, STAYED, Arrival, Passage
from mqttlite.core.limits import FOLLOW_BYTES, FOLLOW_CHUNKS, FOLLOW_KEPT_BYTES, FOLLOW_MESSAGES, FOLLOW_PAUSE_S, Limits
from mqttlite.core.reasons import CloseReason
from mqttlite.core.workers import ASKED, Workers
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V31, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Auth, Disconnect, Pingreq, Pingresp, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_crew import Crew
from tests.support.core_driver import Client, World
from tests.unit.core.test_workers import acks

MANY = 300


def stream(client: Client, topic: str = "t", qos: int = 0, first: int = 0, count: int = MANY) -> bytes:
    """So many numbered messages, as one chunk; those with an identifier have it from 1 on."""
    return b"".join(
        encode(
            Publish(topic.encode(), b"%08d" % number, qos, False, False, number - first + 1 if qos else 0),
            client.version,
        )
        for number in range(first, first + count)
    )


def send(crew: Crew, client: Client, chunks: int, topic: str = "t", qos: int = 0) -> None:
    for _ in range(chunks):
        client.send_bytes(stream(client, topic, qos))
        crew.pump()
        release(crew, client, qos)


def release(crew: Crew, client: Client, qos: int) -> None:
    if qos == 2:
        client.send(*[Ack(PUBREL, number + 1) for number in range(MANY)])
        crew.pump()


def pair(
    version: int = V5, qos: int = 0, keeper: int = 0, workers: int = 2, limits: Limits | None = None, **options: object
) -> tuple[Crew, Client, Client]:
    """A subscriber at worker 1, and a publisher at worker 0 whose identifier that worker keeps."""
    crew = Crew(workers, limits)
    subscriber = crew.subscriber(1, "t", qos=2)
    publisher = join(crew, 0, crew.name(keeper), version, **options)
    assert crew.home(publisher.connection.client_id) == [0]
    return crew, subscriber, publisher


def join(crew: Crew, at: int, client_id: str, version: int = V5, **options: object) -> Client:
    """A client that comes in at a worker; all that is to be said of that is."""
    client = crew[at].open(version)
    client.connect(client_id, auto_ack=False, **options)  # type: ignore[arg-type]
    crew.pump()
    client.received()
    return client


def is_at(crew: Crew, client: Client, worker: int) -> bool:
    """Whether a client is connected to a worker, is at home there, and nowhere else is anything of it."""
    client_id = client.connection.client_id
    for other in crew.workers:
        assert (client.connection in other.broker.connections.values()) == (other.at == worker)
        assert (client_id in other.broker._online) == (other.at == worker)
        assert (other.broker.sessions.get(client_id) is not None) == (other.at == worker)
        assert not other.workers._departed
        assert not other.workers._unknown
        assert other.broker.turn.leaving == other.broker.turn.welcome == []
    return crew.home(client_id) == [worker] and client.world is crew[worker]


@pytest.mark.parametrize("keeper", [0, 1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V31, V311, V5])
def test_who_streams_to_one_other_worker_goes_there_and_all_arrives_in_order(
    version: int, qos: int, keeper: int
) -> None:
    crew, subscriber, publisher = pair(version, qos, keeper, workers=3)
    number = publisher.connection.number
    for chunk in range(FOLLOW_CHUNKS + 3):
        publisher.send_bytes(stream(publisher, qos=qos, first=chunk * MANY))
        crew.pump()
        release(crew, publisher, qos)
        assert is_at(crew, publisher, 0 if chunk + 1 < FOLLOW_CHUNKS else 1)
    assert subscriber.payloads() == [f"{each:08}" for each in range((FOLLOW_CHUNKS + 3) * MANY)]
    assert publisher.connection.number == number
    answers = acks(publisher)
    each = [(PUBACK, at + 1, 0) for at in range(MANY)]
    if qos == 2:
        each = [(kind, at + 1, 0) for kind in (PUBREC, PUBCOMP) for at in range(MANY)]
    assert answers == each * (FOLLOW_CHUNKS + 3) if qos else answers == []
    publisher.disconnect()
    crew.pump()
    assert crew.home(publisher.connection.client_id) == []


def test_at_its_new_home_it_is_what_it_was() -> None:
    crew = Crew(2)
    crew.subscriber(1, "t")
    publisher = crew[0].open(V5)
    connected_at, opened_at = crew[0].now, publisher.connection.opened_at
    publisher.connect("p", keep_alive=40, receive_maximum=7, maximum_packet_size=5_000, username="u")
    former = publisher.connection
    hello = former.bytes_received
    former.backpressure_s, former.backpressure_count = 1.5, 3
    former.outbox.high_water_bytes = 99
    crew.pump()
    publisher.received()
    crew.advance(5.0)
    send(crew, publisher, FOLLOW_CHUNKS - 1)
    publisher.send_bytes(stream(publisher) + encode(Publish(b"t", b"cut"), V5)[:4])
    crew.pump()
    connection = publisher.connection
    assert is_at(crew, publisher, 1)
    assert connection is not former
    assert former.state == CLOSED
    assert connection.state == CONNECTED
    assert (connection.client_id, connection.username, connection.version) == ("p", "u", V5)
    assert (connection.keep_alive_s, connection.clean_start, connection.session_present) == (40, True, False)
    assert (connection.opened_at, connection.connected_at) == (opened_at, connected_at)
    assert (connection.outbox.max_packet_bytes, connection.outbox.version) == (5_000, V5)
    assert crew[1].session("p").quota == 7
    earlier = connection.earlier
    assert earlier.bytes_received == former.bytes_received == hello + FOLLOW_CHUNKS * len(stream(publisher))
    assert earlier.bytes_sent == former.outbox.bytes_sent > 0
    assert (earlier.received_qos0, earlier.received_qos1, earlier.received_qos2) == (FOLLOW_CHUNKS * MANY, 0, 0)
    assert (earlier.backpressure_s, earlier.backpressure_count, earlier.high_water_bytes) == (1.5, 3, 99)
    assert (connection.bytes_received, connection.received) == (4, 0), (
        "what was read of the next message is counted once"
    )
    publisher.send_bytes(encode(Publish(b"t", b"cut"), V5)[4:])
    assert [worker.broker.opened for worker in crew.workers] == [1, 1]
    publisher.send(Pingreq())
    assert publisher.received() == [Pingresp()]


def test_it_is_silent_from_its_arrival_on() -> None:
    crew, _, publisher = pair(keep_alive=10)
    send(crew, publisher, FOLLOW_CHUNKS)
    crew.advance(14.0)
    assert not publisher.closed
    crew.advance(2.0)
    assert publisher.closed
    assert publisher.connection.close_reason == CloseReason.KEEP_ALIVE_TIMEOUT


def test_nobody_goes_twice() -> None:
    crew, subscriber, publisher = pair()
    send(crew, publisher, FOLLOW_CHUNKS)
    subscriber.disconnect()
    crew.pump()
    other = crew.subscriber(0, "t")
    send(crew, publisher, 4 * FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 1)
    assert len(other.payloads()) == 4 * FOLLOW_CHUNKS * MANY


def test_what_is_not_yet_released_goes_along() -> None:
    crew, subscriber, publisher = pair(qos=2)
    for number in range(FOLLOW_CHUNKS):
        publisher.send_bytes(chunk_of(publisher, number))
        crew.pump()
    assert is_at(crew, publisher, 1)
    kept = crew[1].session(publisher.connection.client_id).received.all()
    assert kept == list(range(1, FOLLOW_CHUNKS * 100 + 1))
    subscriber.received()
    publisher.received()
    publisher.send(Publish(b"t", b"again", 2, False, True, 5))
    publisher.send(Ack(PUBREL, 5), Ack(PUBREL, FOLLOW_CHUNKS * 100))
    crew.pump()
    assert acks(publisher) == [(PUBREC, 5, 0), (PUBCOMP, 5, 0), (PUBCOMP, FOLLOW_CHUNKS * 100, 0)]
    assert subscriber.payloads() == []


def chunk_of(publisher: Client, number: int) -> bytes:
    """A hundred messages of QoS 2 whose identifiers follow those of the chunk before."""
    return b"".join(
        encode(Publish(b"t", bytes(20), 2, False, False, number * 100 + at + 1), publisher.version) for at in range(100)
    )


@pytest.mark.parametrize(
    "reason", ["session", "will", "subscribed", "has been sent messages", "alias", "authenticates"]
)
def test_who_is_more_than_a_publisher_stays(reason: str) -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "t")
    will = Will(b"w", b"", 0, False) if reason == "will" else None
    publisher = crew.connect(0, expiry=60 if reason == "session" else None, will=will)
    if reason in ("subscribed", "has been sent messages"):
        publisher.subscribe("other")
        crew.pump()
    if reason == "has been sent messages":
        crew[0].publish("other")
        publisher.send_bytes(b"\xa2\x0a\0\x09\0\0\x05other")
        assert crew[0].session(publisher.connection.client_id).subscriptions == {}
    if reason == "alias":
        publisher.send(Publish(b"t", b"", 0, False, False, 0, Properties(topic_alias=1)))
    if reason == "authenticates":
        from mqttlite.core.authentication import Exchange

        publisher.connection.exchange = Exchange("SCRAM-SHA-256")
    crew.pump()
    send(crew, publisher, 3 * FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 0)
    assert len(subscriber.payloads()) > FOLLOW_CHUNKS


@pytest.mark.parametrize("waits", ["queued", "in flight", "released"])
def test_whose_messages_of_before_wait_for_it_stays(waits: str) -> None:
    crew = Crew(2)
    crew.subscriber(1, "t")
    client_id = crew.name(0)
    before = crew.connect(0, client_id=client_id, expiry=60, auto_ack=False)
    before.subscribe("other", qos=2)
    crew.pump()
    if waits != "queued":
        crew[0].publish("other", "m", 2)
    if waits == "released":
        before.send(Ack(PUBREC, 1))
    before.disconnect()
    crew.pump()
    if waits == "queued":
        crew[0].publish("other", "m", 2)
    publisher = join(crew, 0, client_id, clean_start=False)
    publisher.send_bytes(b"\xa2\x0a\0\x09\0\0\x05other")
    publisher.connection.outbox.sent_qos2 = 0  # as if it had been too large for it
    send(crew, publisher, 2 * FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 0)


def test_who_lost_messages_stays_where_that_is_counted() -> None:
    crew, _, publisher = pair()
    publisher.connection.outbox.drops["buffer_full"] = 1
    send(crew, publisher, 2 * FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 0)
    publisher.connection.outbox.drops.clear()
    crew[0].session(publisher.connection.client_id).drops["queue_full"] = 1
    send(crew, publisher, 2 * FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 0)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("more", ["here", "a third worker", "a group", "nobody"])
def test_whose_messages_go_elsewhere_too_stays(more: str, qos: int) -> None:
    crew, _, publisher = pair(workers=3)
    if more == "here":
        crew.subscriber(0, "t")
    elif more == "a third worker":
        crew.subscriber(2, "t")
    elif more == "a group":
        crew.subscriber(1, "$share/g/t")
    for _ in range(2 * FOLLOW_CHUNKS):
        send(crew, publisher, 1, qos=qos)
        if more == "nobody":
            publisher.send_bytes(stream(publisher, "nobody's"))
            crew.pump()
    assert is_at(crew, publisher, 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("messages", "size", "worker"),
    [(FOLLOW_MESSAGES - 1, 14, 0), (FOLLOW_MESSAGES, 14, 1), (1, FOLLOW_BYTES - 1, 0), (1, FOLLOW_BYTES, 1)],
)
def test_a_chunk_counts_by_its_messages_or_by_its_bytes(messages: int, size: int, worker: int, qos: int) -> None:
    crew, subscriber, publisher = pair(V311, qos)
    identifier = 1 if qos else 0
    overhead = len(encode(Publish(b"t", bytes(size), qos, False, False, identifier), V311)) - size
    payload = bytes(size - overhead)
    for _ in range(FOLLOW_CHUNKS):
        packets = [Publish(b"t", payload, qos, False, False, at + 1 if qos else 0) for at in range(messages)]
        chunk = b"".join(encode(packet, V311) for packet in packets)
        assert len(chunk) == messages * size
        publisher.send_bytes(chunk)
        crew.pump()
        release(crew, publisher, qos)
    assert is_at(crew, publisher, worker)
    assert len(subscriber.payloads()) == FOLLOW_CHUNKS * messages


@pytest.mark.parametrize(("pause", "worker"), [(FOLLOW_PAUSE_S, 1), (1.01 * FOLLOW_PAUSE_S, 0)])
def test_who_sends_now_and_then_what_has_gathered_is_no_stream(pause: float, worker: int) -> None:
    crew, _, publisher = pair()
    for _ in range(FOLLOW_CHUNKS):
        crew.advance(pause)
        publisher.send_bytes(stream(publisher, count=FOLLOW_MESSAGES))
        publisher.send_bytes(stream(publisher, count=1))
        crew.pump()
    assert is_at(crew, publisher, worker)
    send(crew, publisher, FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 1)


def test_a_long_message_that_trickles_in_is_no_stream() -> None:
    crew, subscriber, publisher = pair()
    packet = encode(Publish(b"t", bytes(2 * FOLLOW_BYTES)), V5)
    for _ in range(2 * FOLLOW_CHUNKS):
        for at in range(0, len(packet), FOLLOW_BYTES - 1):
            publisher.send_bytes(packet[at : at + FOLLOW_BYTES - 1])
        crew.pump()
    assert is_at(crew, publisher, 0)
    assert len(subscriber.payloads()) == 2 * FOLLOW_CHUNKS


def test_a_long_chunk_without_messages_leads_nowhere() -> None:
    crew, _, publisher = pair(qos=2)
    for _ in range(FOLLOW_CHUNKS - 1):
        publisher.send_bytes(stream(publisher, qos=2))
        crew.pump()
        publisher.send_bytes(encode(Ack(PUBREL, 1), V5) * (FOLLOW_BYTES // 4 + 1))
        release(crew, publisher, 2)
    assert is_at(crew, publisher, 0)


def test_single_messages_of_many_topics_lead_as_well_as_runs() -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "many/#")
    publisher = crew.connect(0)
    chunk = b"".join(encode(Publish(b"many/%d" % at, b"x" * (at % 9)), V5) for at in range(MANY))
    for _ in range(FOLLOW_CHUNKS):
        publisher.send_bytes(chunk)
        crew.pump()
    assert is_at(crew, publisher, 1)
    assert len(subscriber.payloads()) == FOLLOW_CHUNKS * MANY


def test_a_retained_message_among_them_is_for_all_and_leads_nowhere() -> None:
    crew, _, publisher = pair()
    chunk = stream(publisher) + encode(Publish(b"t", b"x", 0, True), V5)
    for _ in range(2 * FOLLOW_CHUNKS):
        publisher.send_bytes(chunk)
        crew.pump()
    assert is_at(crew, publisher, 0)


def test_messages_to_one_worker_each_are_not_all_to_one() -> None:
    crew, _, publisher = pair(workers=3)
    crew.subscriber(2, "third")
    for _ in range(2 * FOLLOW_CHUNKS):
        publisher.send_bytes(stream(publisher) + stream(publisher, "third"))
        crew.pump()
    assert is_at(crew, publisher, 0)


def test_who_comes_back_is_not_sent_after_itself() -> None:
    """That it went is known to its keeper by now, or will be; what is true is that it is here."""
    workers = Workers(0, 3, World().broker.turn)
    client_id = next(name for name in (b"%d" % at for at in range(99)) if workers.keeper(name) == 2)
    workers.arrive(client_id, 2)
    workers.depart(client_id, 1)
    workers.arrive(client_id, 1)
    workers.unuse(client_id, False)
    assert workers.locate(client_id, 7) == ASKED


def test_it_takes_several_chunks_in_a_row() -> None:
    crew, _, publisher = pair()
    crew.subscriber(0, "here")
    for _ in range(5):
        send(crew, publisher, FOLLOW_CHUNKS - 1)
        send(crew, publisher, 1, "here")
    assert is_at(crew, publisher, 0)
    assert publisher.connection.led_to == NOWHERE
    publisher.send(Pingreq())
    publisher.send_bytes(encode(Pingreq(), V5) * FOLLOW_BYTES)
    send(crew, publisher, FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 1)


def test_half_a_message_goes_along() -> None:
    crew, subscriber, publisher = pair()
    send(crew, publisher, FOLLOW_CHUNKS - 1)
    subscriber.received()
    last = encode(Publish(b"t", b"cut"), V5)
    publisher.send_bytes(stream(publisher) + last[:4])
    crew.pump()
    assert is_at(crew, publisher, 1)
    publisher.send_bytes(last[4:])
    assert subscriber.payloads()[-1] == "cut"


@pytest.mark.parametrize(("size", "worker"), [(FOLLOW_KEPT_BYTES, 1), (FOLLOW_KEPT_BYTES + 1, 0)])
def test_of_a_long_one_not_more_than_so_much(size: int, worker: int) -> None:
    crew, subscriber, publisher = pair()
    long = encode(Publish(b"t", bytes(2 * size)), V5)
    send(crew, publisher, FOLLOW_CHUNKS - 1)
    publisher.send_bytes(stream(publisher) + long[:size])
    crew.pump()
    assert is_at(crew, publisher, worker)
    publisher.send_bytes(long[size:])
    crew.pump()
    assert len(subscriber.payloads()[-1]) == 2 * size


# ---------------------------------------------------------------------- races


def about_to_ask(qos: int = 0, keeper: int = 0, limits: Limits | None = None) -> tuple[Crew, Client, Client]:
    """A publisher that would go with the next pass; all of its messages are on their way."""
    crew, subscriber, publisher = pair(qos=qos, keeper=keeper, limits=limits)
    send(crew, publisher, FOLLOW_CHUNKS - 1, qos=qos)
    publisher.send_bytes(stream(publisher, qos=qos))
    assert crew[0].broker.turn.leaving == [publisher.connection.number]
    return crew, subscriber, publisher


def test_it_waits_for_the_answers_of_all() -> None:
    """A slow worker is to have what it was sent before it is sent more, from elsewhere."""
    crew = Crew(3)
    crew.subscriber(1, "t")
    third = crew.subscriber(2, "third")
    publisher = crew.connect(0)
    publisher.send_bytes(stream(publisher, "third"))
    for _ in range(FOLLOW_CHUNKS):
        publisher.send_bytes(stream(publisher))
        crew.send(0, 1)
    assert crew.ask(0) == 1
    crew.send(0, 1)
    crew.send(1)
    assert crew[0].broker.turn.welcome == [], "the third has not answered"
    crew.send(0, 2)
    assert len(third.payloads()) == MANY
    crew.send(2)
    assert crew.depart(0) == [True]
    crew.pump()
    assert is_at(crew, publisher, 1)


@pytest.mark.parametrize("target", [False, True])
def test_who_has_left_is_waited_for_by_nobody(target: bool) -> None:
    crew = Crew(3)
    crew.subscriber(1, "t")
    publisher = crew.connect(0)
    for _ in range(FOLLOW_CHUNKS):
        publisher.send_bytes(stream(publisher))
        crew.send(0)
    crew.ask(0)
    crew.send(0, 2 if target else 1)
    crew.send(2 if target else 1)
    assert crew[0].broker.turn.welcome == []
    crew[0].broker.on_gone(1 if target else 2, crew[0].now)
    assert crew[0].broker.turn.welcome == [publisher.connection.number]
    assert crew.depart(0) == [not target]
    crew.outgoing[0].clear()
    crew.pump()
    assert is_at(crew, publisher, 0 if target else 1)


@pytest.mark.parametrize("gone", [1, 2])
def test_who_has_left_is_not_asked(gone: int) -> None:
    crew, _, publisher = pair(workers=3)
    crew[0].broker.on_gone(gone, crew[0].now)
    send(crew, publisher, FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 0 if gone == 1 else 1)


def test_a_chunk_for_somebody_else_does_not_undo_that() -> None:
    crew, _, publisher = pair()
    crew[1].has_room = False
    asked = 0
    for _ in range(3 * FOLLOW_CHUNKS):
        for _ in range(FOLLOW_CHUNKS):
            publisher.send_bytes(stream(publisher))
            asked += crew.ask(0)
            crew.pump()
        publisher.send_bytes(stream(publisher, "nobody's"))
    assert asked == 1


def test_each_refusal_doubles_the_time_to_the_next_question() -> None:
    crew, _, publisher = pair()
    crew[1].has_room = False
    asked: list[int] = []
    for chunk in range(1, 8 * FOLLOW_CHUNKS + 1):
        publisher.send_bytes(stream(publisher))
        if crew.ask(0):
            asked.append(chunk)
        crew.pump()
    assert asked == [FOLLOW_CHUNKS, 2 * FOLLOW_CHUNKS, 4 * FOLLOW_CHUNKS, 8 * FOLLOW_CHUNKS]


def test_a_worker_without_room_that_is_not_where_it_goes_does_not_matter() -> None:
    crew, _, publisher = pair(workers=3)
    crew[2].has_room = False
    send(crew, publisher, FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 1)


def test_the_answer_comes_behind_all_that_was_sent_before() -> None:
    crew, subscriber, publisher = about_to_ask()
    assert crew.ask(0) == 1
    subscriber.received()
    crew.gather(0)
    *messages, question = crew.outgoing[0]
    assert messages
    assert isinstance(question, Passage)
    crew.send(0)
    assert len(subscriber.payloads()) == MANY
    crew.send(1)
    assert crew.depart(0) == [True]
    crew.pump()
    assert is_at(crew, publisher, 1)


def test_who_is_heard_of_meanwhile_stays() -> None:
    crew, _, publisher = about_to_ask()
    crew.ask(0)
    publisher.send(Pingreq())
    crew.send(0)
    crew.send(1)
    assert crew.depart(0) == [False]
    crew.pump()
    assert is_at(crew, publisher, 0)
    send(crew, publisher, FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 1)


def test_nobody_asks_twice_at_a_time() -> None:
    crew, _, publisher = about_to_ask()
    crew.ask(0)
    assert not crew[0].broker.ask(publisher.connection, crew[0].now)
    crew.pump()
    assert is_at(crew, publisher, 1)


def test_whose_messages_go_elsewhere_by_now_does_not_ask() -> None:
    crew, _, publisher = about_to_ask()
    publisher.send_bytes(stream(publisher, "nobody's"))
    assert crew.ask(0) == 0
    crew.pump()
    assert is_at(crew, publisher, 0)


def test_who_waits_for_an_acknowledgement_stays() -> None:
    crew, _, publisher = pair(qos=1)
    send(crew, publisher, FOLLOW_CHUNKS - 1, qos=1)
    publisher.send_bytes(stream(publisher, qos=1))
    crew.ask(0)
    assert isinstance(crew.gather(0).pop(), Passage)
    crew[1].broker.on_passage(Passage(0, publisher.connection.number, 0), True, crew[1].now)
    (answer,) = crew[1].broker.turn.take_outgoing()
    assert isinstance(answer, Passage)
    crew[0].broker.on_passage(Passage(1, answer.number, answer.what), True, crew[0].now)
    assert publisher.connection.postponed
    assert crew.depart(0) == [False]
    crew.pump()
    assert is_at(crew, publisher, 0) or is_at(crew, publisher, 1)


@pytest.mark.parametrize("how", ["blocked", "unwritten"])
def test_who_does_not_read_its_answers_stays(how: str) -> None:
    crew, _, publisher = about_to_ask()
    crew.ask(0)
    crew.send(0)
    crew.send(1)
    if how == "blocked":
        crew[0].broker.block(publisher.connection, crew[0].now)
    else:
        publisher.connection.outbox.answer(b"\xd0\0")
    assert crew.depart(0) == [False]


@pytest.mark.parametrize("full", ["sockets", "sessions"])
def test_where_there_is_no_room_nobody_goes(full: str) -> None:
    crew, _, publisher = about_to_ask(limits=Limits(max_sessions=1) if full == "sessions" else None)
    crew[1].has_room = full != "sockets"
    crew.pump()
    assert is_at(crew, publisher, 0)
    assert publisher.connection.asked_at == -1
    publisher.send(Pingreq())
    assert publisher.received() == [Pingresp()]


def test_who_leaves_before_the_answer_is_gone() -> None:
    crew, _, publisher = about_to_ask()
    crew.ask(0)
    number = publisher.connection.number
    publisher.disconnect()
    crew.send(0)
    crew.send(1)
    assert crew[0].broker.turn.welcome == [number]
    crew[0].broker.turn.welcome.clear()
    assert not crew[0].broker.depart(publisher.connection, crew[0].now)
    assert not crew[0].broker.ask(publisher.connection, crew[0].now)
    crew.pump()
    assert crew.home(publisher.connection.client_id) == []


def departed(keeper: int) -> tuple[Crew, Client]:
    """A publisher that is on its way from worker 0 to worker 1."""
    crew, _, publisher = about_to_ask(keeper=keeper)
    crew.ask(0)
    crew.send(0)
    crew.send(1)
    assert crew.depart(0) == [True]
    return crew, publisher


@pytest.mark.parametrize("keeper", [0, 1])
@pytest.mark.parametrize("came_in", [0, 1])
def test_a_second_connection_meanwhile_takes_over_wherever_it_came_in(came_in: int, keeper: int) -> None:
    crew, publisher = departed(keeper)
    client_id = publisher.connection.client_id
    second = crew[came_in].open(V5)
    second.connect(client_id)
    crew.pump()
    assert publisher.closed
    assert publisher.connection.close_reason == CloseReason.TAKEN_OVER
    assert [packet.reason_code for packet in publisher.received() if isinstance(packet, Disconnect)] == [0x8E]
    assert is_at(crew, second, 1)


@pytest.mark.parametrize("keeper", [0, 1])
def test_a_second_connection_that_is_there_first_stays(keeper: int) -> None:
    """The connection itself may take longer than the word that it comes."""
    crew, publisher = departed(keeper)
    client_id = publisher.connection.client_id
    (move,) = crew[0].broker.turn.moved
    assert move.traveller is not None
    crew[0].broker.turn.moved.clear()
    crew[1].broker.expect(move.traveller, 0, crew[1].now)
    crew.pump()
    second = join(crew, 1, client_id, expiry=60)
    second.subscribe("precious", qos=1)
    if keeper:
        second.disconnect()  # its session stays
    publisher.world = crew[1]
    publisher.connection = crew[1].broker.arrive(move.traveller, publisher.connection.peer, crew[1].now)
    crew[1].clients[publisher.connection.number] = publisher
    crew[1].settle()
    assert publisher.connection.close_reason == CloseReason.TAKEN_OVER
    assert publisher.connection.accepted
    crew.pump()
    assert list(crew[1].session(client_id).subscriptions) == [b"precious"]
    assert crew.home(client_id) == [1]
    if not keeper:
        assert is_at(crew, second, 1)


def test_where_the_room_is_gone_when_it_comes_it_is_let_in() -> None:
    """It takes none of what the broker has in all, and only so many can be under way."""
    crew, _, publisher = about_to_ask(limits=Limits(max_sessions=2))
    crew.ask(0)
    crew.send(0)
    crew[1].connect(crew.name(1))
    crew.send(1)
    assert crew.depart(0) == [True]
    crew.pump()
    assert is_at(crew, publisher, 1)
    assert len(crew[1].broker.sessions) == 3
    refused = crew[1].open(V5).connect(crew.name(1))
    assert refused is not None
    assert refused.reason_code == 0x97


@pytest.mark.parametrize("keeper", [0, 1])
def test_who_cannot_go_ends_where_it_was(keeper: int) -> None:
    crew, publisher = departed(keeper)
    (move,) = crew[0].broker.turn.moved
    assert move.traveller is not None
    crew[0].broker.turn.moved.clear()
    crew[0].broker.stay(move.traveller)
    publisher.connection = crew[0].broker.arrive(move.traveller, publisher.connection.peer, crew[0].now)
    assert is_at(crew, publisher, 0)
    publisher.lose()
    crew.pump()
    assert crew.home(publisher.connection.client_id) == []
    again = join(crew, 1, publisher.connection.client_id)
    assert is_at(crew, again, 1)


def goes(crew: Crew, publisher: Client, at: int, to: int) -> None:
    """A publisher moves, whatever else has to be told of that."""
    for _ in range(FOLLOW_CHUNKS):
        publisher.send_bytes(stream(publisher))
        for other in (0, 1, 2):
            if other != at:
                crew.send(at, other)
    assert crew.ask(at) == 1
    crew.send(at)
    for other in (0, 1, 2):
        if other != at:
            crew.send(other, at)
    assert crew.depart(at) == [True]
    assert crew.move(at) == 1
    assert publisher.world is crew[to]


def test_a_client_that_comes_the_same_way_twice_before_that_is_known() -> None:
    """Its keeper is slow to tell where it went, and it has been gone and come again meanwhile."""
    crew, _, publisher = pair(keeper=2, workers=3)
    client_id = publisher.connection.client_id
    goes(crew, publisher, 0, 1)
    crew.send(1, 2)  # it arrived
    crew.send(2, 0)  # which is known, but not yet to worker 1
    publisher.disconnect()
    crew.send(1, 2)  # it is released
    again = crew[0].open(V5)
    again.connect(client_id)
    crew.send(0, 2)
    crew.send(2, 0)
    again.received()
    goes(crew, again, 0, 1)
    crew.send(1, 2)
    assert crew[1].workers._unknown == {client_id.encode(): 2}
    assert not crew[1].workers.may_depart(client_id.encode())
    crew.pump()
    assert is_at(crew, again, 1)


def test_a_third_worker_s_keeper_tells_both() -> None:
    crew, _, publisher = pair(keeper=2, workers=3)
    send(crew, publisher, FOLLOW_CHUNKS - 1)
    publisher.send_bytes(stream(publisher))
    crew.ask(0)
    for worker in (0, 1, 2):
        crew.send(worker)
    assert crew.depart(0) == [True]
    crew.move(0)
    client_id = publisher.connection.client_id.encode()
    assert client_id in crew[0].workers._departed
    assert client_id in crew[1].workers._unknown
    assert isinstance(crew.gather(1)[-1], Arrival)
    crew.send(1)
    assert len(crew.gather(2)) == 2
    crew.send(2)
    assert is_at(crew, publisher, 1)


def test_who_stayed_did_nothing_elsewhere() -> None:
    client = Crew(2).connect(0)
    assert client.connection.earlier is STAYED
    assert (STAYED.bytes_received, STAYED.received_qos0, STAYED.backpressure_s) == (0, 0, 0.0)


def test_one_worker_alone_asks_nobody() -> None:
    world = World()
    world.connect().subscribe("t")
    publisher = world.connect()
    for _ in range(2 * FOLLOW_CHUNKS):
        publisher.send_bytes(stream(publisher))
    assert world.broker.turn.leaving == []


def test_what_is_sent_after_a_move_is_as_strict_as_before() -> None:
    crew, _, publisher = pair()
    send(crew, publisher, FOLLOW_CHUNKS)
    assert is_at(crew, publisher, 1)
    publisher.send(Auth(0x18))
    assert publisher.closed
    assert publisher.connection.close_reason == CloseReason.PROTOCOL_ERROR
