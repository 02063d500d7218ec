"""Several workers as one broker, for tests that drive the core: what one has for another is there at once.

It has the inputs of `Broker` and what the tests look at. A connection that moves to another worker is another
`Connection` from then on; `now_of` tells which.
"""

import random
from collections import ChainMap, Counter

from mqttlite.cluster.envelope import read_traveller, write_traveller
from mqttlite.core.authentication import Verdict
from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change, SaveRetained, SaveSubscription
from mqttlite.core.connection import Connection, Peer
from mqttlite.core.forwards import Arrival, Batch, Claim, Forward, Located, Outcome, Passage, Release, Stream
from mqttlite.core.limits import Limits
from mqttlite.core.message import Message
from mqttlite.core.session import Session
from mqttlite.core.turn import Authenticate, Outbox


class TeamTurn:
    """What has come up at any of them."""

    def __init__(self, workers: list[Broker]) -> None:
        self._workers = workers
        self.dirty: list[Outbox] = []
        self.changes: list[Change] = []
        self.questions: list[Authenticate] = []
        self.connected: list[int] = []
        self.closed: list[int] = []

    def gather(self) -> None:
        for worker in self._workers:
            turn = worker.turn
            for name in ("dirty", "changes", "questions", "connected", "closed"):
                found = getattr(turn, name)
                getattr(self, name).extend(found)
                found.clear()

    @property
    def hungry(self) -> list[int]:
        return [number for worker in self._workers for number in worker.turn.hungry]

    @property
    def overflowed(self) -> list[int]:
        return [number for worker in self._workers for number in worker.turn.overflowed]

    @property
    def pending_bytes(self) -> int:
        return sum(worker.turn.pending_bytes for worker in self._workers)

    @pending_bytes.setter
    def pending_bytes(self, value: int) -> None:
        for worker in self._workers:
            worker.turn.pending_bytes = value


class TeamSessions:
    def __init__(self, workers: list[Broker]) -> None:
        self._workers = workers

    def __len__(self) -> int:
        return sum(len(worker.sessions) for worker in self._workers)

    def get(self, client_id: str) -> Session | None:
        found = [worker.sessions.get(client_id) for worker in self._workers]
        there = [session for session in found if session is not None]
        assert len(there) < 2, f"{client_id!r} has two homes"
        return there[0] if there else None

    @property
    def _by_client_id(self) -> dict[str, Session]:
        return {session.client_id: session for worker in self._workers for session in worker.sessions.values()}


class TeamPublisher:
    def __init__(self, workers: list[Broker]) -> None:
        self._workers = workers

    @property
    def drops(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for worker in self._workers:
            total.update(worker.publisher.drops)
        return total


class Team:
    def __init__(self, rng: random.Random, count: int, limits: Limits, share_policies: dict[str, str]) -> None:
        self._rng = rng
        self.workers = [Broker(limits, f"auto{at}-", share_policies, at, count) for at in range(count)]
        self.turn = TeamTurn(self.workers)
        self.sessions = TeamSessions(self.workers)
        self.publisher = TeamPublisher(self.workers)
        self._peers: dict[int, Peer] = {}
        self._moved: dict[Connection, Connection] = {}
        self._places: dict[int, tuple[Connection, Broker]] = {}
        """Each connection as it is now, and where, by its number."""
        self._held: list[tuple[int, Outcome]] = []
        self.forwarded = 0
        """Messages that went from one worker to another."""
        self.followed = 0
        """Clients that followed their messages."""

    # ------------------------------------------------------------------ inputs

    def restore(self, changes: list[Change], now: float) -> None:
        for at, worker in enumerate(self.workers):
            worker.restore([change for change in changes if self._belongs(change, at)], now)
        self._pump(now)

    def open(self, peer: Peer, now: float) -> Connection:
        worker = self._rng.choice(self.workers)
        connection = worker.open(peer, now)
        self._peers[connection.number] = peer
        self._places[connection.number] = connection, worker
        return connection

    def now_of(self, connection: Connection) -> Connection:
        """The same client's connection, where it is now."""
        while connection in self._moved:
            connection = self._moved[connection]
        return connection

    def feed(self, connection: Connection, chunk: bytes, now: float) -> None:
        connection = self.now_of(connection)
        self._of(connection.number).feed(connection, chunk, now)
        self._pump(now)

    def close(self, connection: Connection, now: float, detail: str = "") -> None:
        connection = self.now_of(connection)
        self._of(connection.number).close(connection, now, detail)
        self._pump(now)

    def publish(self, topic: bytes, payload: bytes, qos: int, retain: bool, now: float) -> int:
        code = self._rng.choice(self.workers).publish(topic, payload, qos, retain, now)
        self._pump(now)
        return code

    def answer(self, number: int, verdict: Verdict, now: float) -> None:
        self._of(number).answer(number, verdict, now)
        self._pump(now)

    def tick(self, now: float) -> float | None:
        for worker in self.workers:
            worker.tick(now)
            self._pump(now)
        return self.due_at()

    def due_at(self) -> float | None:
        due = [at for worker in self.workers if (at := worker.due_at()) is not None]
        return min(due) if due else None

    def block(self, connection: Connection, now: float) -> None:
        connection = self.now_of(connection)
        self._of(connection.number).block(connection, now)

    def unblock(self, connection: Connection, now: float) -> None:
        connection = self.now_of(connection)
        self._of(connection.number).unblock(connection, now)
        self._pump(now)

    def on_committed(self, now: float) -> None:
        """All changes are: what waited for that is told."""
        held, self._held = self._held, []
        for at, outcome in held:
            self.workers[at].turn.outgoing.append(outcome)
        self._pump(now)

    # ------------------------------------------------------------------ what there is

    @property
    def connections(self) -> dict[int, Connection]:
        return dict(ChainMap(*[worker.connections for worker in self.workers]))

    # ------------------------------------------------------------------ between them

    def _of(self, number: int) -> Broker:
        return self._places[number][1]

    def _belongs(self, change: Change, at: int) -> bool:
        if isinstance(change, SaveRetained):
            return True
        client_id: str = change.subscription.client_id if isinstance(change, SaveSubscription) else change.client_id  # type: ignore[union-attr]
        workers = self.workers[at]._workers
        assert workers is not None
        return workers.keeper(client_id.encode()) == at

    def _pump(self, now: float) -> None:
        busy = True
        while busy:
            busy = False
            for at, worker in enumerate(self.workers):
                busy = self._pump_one(at, worker, now) or busy
        self.turn.gather()

    def _pump_one(self, at: int, worker: Broker, now: float) -> bool:
        turn = worker.turn
        interests, turn.interests = turn.interests, []
        outgoing = turn.take_outgoing()
        moved, turn.moved = turn.moved, []
        for interest in interests:
            for other in self.workers:
                if other is not worker:
                    other.on_interest(at, interest)
        for each in outgoing:
            self.forwarded += 1
            if isinstance(each, Batch):
                batch = Batch(
                    [at], each.tag, each.qos, each.version, each.head, each.size, each.packets, each.expires_at
                )
                for other_at in each.workers:
                    self.workers[other_at].on_batch(batch, now)
            elif isinstance(each, Stream):
                stream = Stream(at, each.version, each.came_at, each.packets())
                self.workers[each.worker].on_stream(stream, now)
            elif isinstance(each, Forward):
                came = Forward(
                    at, each.tag, _copy(each.message), each.plain, each.retain, each.stamp, each.shares, each.hops
                )
                self.workers[each.worker].on_forward(came, now)
            elif isinstance(each, Claim):
                self.workers[each.worker].on_claim(Claim(at, each.client_id), now)
            elif isinstance(each, Located):
                self.workers[each.worker].on_located(Located(at, each.client_id, each.home), now)
            elif isinstance(each, Release):
                self.workers[each.worker].on_release(Release(at, each.client_id))
            elif isinstance(each, Passage):
                has_room = self._rng.random() < 0.9
                self.workers[each.worker].on_passage(Passage(at, each.number, each.what), has_room, now)
            elif isinstance(each, Arrival):
                self.workers[each.worker].on_arrival(Arrival(at, each.client_id, each.former, each.is_known))
            elif each.awaits_commit:
                each.awaits_commit = False
                self._held.append((at, each))
            else:
                told = Outcome(at, each.tag, each.code, each.dropped, each.queued, each.sent, each.untaken)
                told.refused = each.refused
                self.workers[each.worker].on_outcome(told, now)
        for move in moved:
            there = self.workers[move.worker]
            peer = self._peers.pop(move.number)
            if move.traveller is None:
                connection = there.open(peer, now)
            else:
                traveller = read_traveller(write_traveller(move.traveller))
                there.expect(traveller, at, now)
                connection = there.arrive(traveller, peer, now)
                there.turn.connected.remove(connection.number)
                self.followed += 1
            self._moved[self._places[move.number][0]] = connection
            self._peers[connection.number] = peer
            self._places[connection.number] = connection, there
            there.feed(connection, move.data, now)
        self._see_off(worker, now)
        return bool(interests or outgoing or moved or turn.outgoing or turn.moved)

    def _see_off(self, worker: Broker, now: float) -> None:
        """Let those go that were answered, and ask for those that would, where all is written."""
        turn = worker.turn
        welcome, turn.welcome = turn.welcome, []
        for number in welcome:
            connection, there = self._places[number]
            if there is worker and connection.outbox.chunks:
                turn.welcome.append(number)  # once that is written
            elif there is worker:
                worker.depart(connection, now)
        leaving, turn.leaving = turn.leaving, []
        for number in leaving:
            connection, there = self._places[number]
            if there is worker and connection.outbox.chunks:
                turn.leaving.append(number)  # once that is written
            elif there is worker:
                worker.ask(connection, now)


def _copy(message: Message) -> Message:
    """What arrives is another object."""
    return Message(message.topic, message.payload, message.qos, message.retain, message.properties, message.expires_at)
