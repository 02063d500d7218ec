"""A client that follows its messages, comes and goes, is one client with one home, whatever overtakes what.

What one worker says to another arrives in order; what it says to two of them, or hands over, in any. One of the ways
may be slow. In the end there is peace: all arrives; then at most one connection is left, its home is known to its
keeper and to nobody else, nothing is remembered of any move, and each subscriber had each message once, those of one
connection in their order.
"""

from collections import defaultdict, deque
from random import Random
from typing import Final

import pytest

from mqttlite.core.connection import CONNECTED
from mqttlite.core.forwards import (
    Arrival,
    Batch,
    Claim,
    Forward,
    Located,
    Move,
    Outcome,
    Outgoing,
    Passage,
    Release,
    Stream,
)
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish
from tests.support.core_crew import Crew
from tests.support.core_driver import Client

QUICK: Final = 60
ALL: Final = 1_500
TOPICS: Final = ("t", "u")


class Story:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.workers = rng.choice([2, 3, 3, 3])
        self.crew = Crew(self.workers)
        self.subscribers = {"t": self.crew.subscriber(1, "t", qos=1), "u": self.crew.subscriber(0, "u", qos=1)}
        for worker in self.crew.workers:
            worker.workers.follow_bytes, worker.workers.follow_chunks = 1, 2
        self.client_id = self.crew.name(rng.randrange(self.workers))
        self.ways: defaultdict[tuple[int, int], deque[Outgoing]] = defaultdict(deque)
        self.handed: defaultdict[tuple[int, int], deque[tuple[Move, Client]]] = defaultdict(deque)
        self.arriving: defaultdict[int, deque[tuple[Move, Client]]] = defaultdict(deque)
        self.asked: set[int] = set()
        self.clients: list[Client] = []
        self.sent: defaultdict[str, list[str]] = defaultdict(list)
        self.moves = 0
        self.slow = rng.choice([None, (self.workers - 1, 1), (0, self.workers - 1)])

    # ------------------------------------------------------------------ what may happen

    def step(self, peace: bool) -> bool:
        """Let one thing happen; False where nothing can."""
        rng = self.rng
        may = [
            (self.deliver, way) for way, waiting in self.ways.items() if waiting and (peace or self._passes(way))
        ] * 3
        may += [(self.take, way) for way, waiting in self.handed.items() if waiting]
        may += [(self.arrive, (at, 0)) for at, waiting in self.arriving.items() if waiting]
        may += [(self.see_off, (at, 0)) for at in range(self.workers) if self._wants(at)]
        if not peace:
            there = [client for client in self.clients if self._is_there(client)]
            may += [(self.publish, (self.clients.index(client), 0)) for client in there]
            if rng.random() < (0.03 if there else 0.6):
                may.append((self.connect, (rng.choice([0, rng.randrange(self.workers)]), 0)))
            if there and rng.random() < 0.1:
                may.append((self.leave, (self.clients.index(there[0]), 0)))
        if not may:
            return False
        what, where = rng.choice(may)
        what(*where)
        self._gather()
        return True

    def deliver(self, sender: int, receiver: int) -> None:
        each = self.ways[sender, receiver].popleft()
        worker = self.crew[receiver]
        if isinstance(each, Batch):
            numbers = each.tag, each.qos, each.version, each.head, each.size
            worker.broker.on_batch(Batch([sender], *numbers, each.packets, each.expires_at), worker.now)
        else:
            assert isinstance(each, Stream | Forward | Outcome | Claim | Located | Release | Passage | Arrival)
            self.crew._deliver(sender, each)
        worker.settle()

    def take(self, sender: int, receiver: int) -> None:
        move, client = self.handed[sender, receiver].popleft()
        if move.traveller is not None:
            self.moves += 1
            self.crew[receiver].broker.expect(move.traveller, sender, self.crew[receiver].now)
        self.arriving[receiver].append((move, client))

    def arrive(self, at: int, _: int) -> None:
        move, client = self.arriving[at].popleft()
        worker = client.world = self.crew[at]
        peer = client.connection.peer
        if move.traveller is None:
            client.connection = worker.broker.open(peer, worker.now)
        else:
            client.connection = worker.broker.arrive(move.traveller, peer, worker.now)
        worker.clients[client.connection.number] = client
        if self.rng.random() < 0.05:
            worker.broker.close(client.connection, worker.now)
        else:
            worker.broker.feed(client.connection, move.data, worker.now)
        worker.settle()

    def see_off(self, at: int, _: int) -> None:
        worker = self.crew[at]
        turn = worker.broker.turn
        welcome, turn.welcome = turn.welcome, []
        leaving, turn.leaving = turn.leaving, []
        for number in welcome:
            self.asked.discard(number)
            if number in worker.clients:
                worker.broker.depart(worker.clients[number].connection, worker.now)
        for number in leaving:
            if number in worker.clients and worker.broker.ask(worker.clients[number].connection, worker.now):
                self.asked.add(number)

    def publish(self, at: int, _: int) -> None:
        client = self.clients[at]
        topic = ("t" if client.world is self.crew[0] else "u") if self.rng.random() < 0.95 else self.rng.choice(TOPICS)
        qos = self.rng.choice([0, 0, 0, 0, 1])
        payloads = [f"{at} {len(self.sent[topic]) + number}" for number in range(self.rng.randint(1, 3))]
        self.sent[topic] += payloads
        packets = [
            Publish(topic.encode(), payload.encode(), qos, packet_id=client.packet_id() if qos else 0)
            for payload in payloads
        ]
        client.send_bytes(b"".join(encode(packet, V5) for packet in packets))

    def connect(self, at: int, _: int) -> None:
        client = self.crew[at].open(V5)
        self.clients.append(client)
        client.connect(self.client_id, auto_ack=False)

    def leave(self, at: int, _: int) -> None:
        if self.rng.random() < 0.5:
            self.clients[at].disconnect()
        else:
            self.clients[at].lose()

    # ------------------------------------------------------------------ the rest

    def _passes(self, way: tuple[int, int]) -> bool:
        return way != self.slow or self.rng.random() < 0.07

    def _wants(self, at: int) -> bool:
        turn = self.crew[at].broker.turn
        return bool(turn.leaving or turn.welcome)

    def _is_there(self, client: Client) -> bool:
        """Whether a client is connected and read."""
        connection = client.connection
        return (
            not client.closed
            and connection.state == CONNECTED
            and connection.number in client.world.clients
            and connection.number not in self.asked
        )

    def _gather(self) -> None:
        for at, worker in enumerate(self.crew.workers):
            turn = worker.broker.turn
            for each in turn.take_outgoing():
                for receiver in each.workers if isinstance(each, Batch) else [each.worker]:
                    self.ways[at, receiver].append(each)
            moved, turn.moved = turn.moved, []
            for move in moved:
                self.handed[at, move.worker].append((move, worker.clients.pop(move.number)))
            worker.settle()

    def ends_well(self) -> None:
        left = [client for client in self.clients if not client.closed]
        assert len(left) < 2
        at = [client.world.broker for client in left]
        assert [self.crew[home].broker for home in self.crew.home(self.client_id)] == at
        for worker in self.crew.workers:
            workers = worker.workers
            for remembered in (workers._departed, workers._unknown, workers._unanswered, workers._waiting):
                assert remembered == {}
        for topic, payloads in self.sent.items():
            heard = self.subscribers[topic].payloads()
            assert sorted(heard) == sorted(payloads)
            for at in range(len(self.clients)):
                assert [each for each in heard if each.startswith(f"{at} ")] == [
                    each for each in payloads if each.startswith(f"{at} ")
                ]


def live(seed: int) -> int:
    """How often the client moved."""
    story = Story(seed)
    for _ in range(story.rng.randint(40, 500)):
        story.step(peace=False)
    for _ in range(5_000):
        if not story.step(peace=True):
            break
    else:
        raise AssertionError(f"seed {seed}: there is no peace")
    try:
        story.ends_well()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return story.moves


def test_a_client_that_moves_has_one_home() -> None:
    assert sum(live(seed) for seed in range(QUICK)) > QUICK // 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, ALL, 240))
def test_a_client_that_moves_has_one_home_in_many_stories(first: int) -> None:
    assert sum(live(seed) for seed in range(first, first + 240)) > 120
