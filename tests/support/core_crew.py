"""Several workers as one broker, for tests of the core. What one says to another travels when the test says so."""

import zlib

from mqttlite.core.broker import Broker
from mqttlite.core.forwards import Arrival, Batch, Claim, Forward, Located, Outcome, Outgoing, Passage, Release, Stream
from mqttlite.core.limits import Limits
from mqttlite.core.message import Message
from mqttlite.core.workers import Workers
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5
from tests.support.core_driver import Client, World


class Worker(World):
    """One of several, with clients of its own."""

    def __init__(self, crew: "Crew", at: int, count: int, limits: Limits, policies: dict[str, str] | None) -> None:
        super().__init__(limits)
        self.crew = crew
        self.at = at
        self.has_room = True
        """Whether connections of others may come."""
        self.broker = Broker(limits, f"auto{at}-", policies, at, count)
        self.store = MemoryStore()

    @property
    def workers(self) -> Workers:
        workers = self.broker._workers
        assert workers is not None
        return workers


class Crew:
    """Workers of one broker. Nothing goes from one to another but by `tell`, `send` and `move`, or by `pump`."""

    def __init__(self, count: int = 2, limits: Limits | None = None, policies: dict[str, str] | None = None) -> None:
        self.workers = [Worker(self, at, count, limits or Limits(), policies) for at in range(count)]
        self.outgoing: list[list[Outgoing]] = [[] for _ in self.workers]
        self._named = 0

    def __getitem__(self, at: int) -> Worker:
        return self.workers[at]

    def name(self, keeper: int) -> str:
        """A client identifier that a worker is the keeper of, another each time."""
        while True:
            self._named += 1
            client_id = f"client{self._named}"
            if self.keeper(client_id) == keeper:
                return client_id

    def keeper(self, client_id: str) -> int:
        return zlib.crc32(client_id.encode()) % len(self.workers)

    def home(self, client_id: str) -> list[int]:
        """Where a client is at home, as the workers know it."""
        there = [worker.at for worker in self.workers if worker.workers.is_here(client_id.encode())]
        known = self[self.keeper(client_id)].workers._homes.get(client_id.encode())
        assert there == ([] if known is None else [known]), "its keeper knows, and nobody else thinks so"
        return there

    def resident(self, home: int, keeper: int = 0) -> str:
        """The identifier of a client that has a session with a worker, and no connection."""
        client_id = self.name(keeper)
        client = self[home].open()
        client.connect(client_id, expiry=600)
        self.pump()
        client.disconnect()
        self.pump()
        assert self.home(client_id) == [home]
        return client_id

    def connect(self, home: int, version: int = V5, client_id: str = "", **options: object) -> Client:
        """A client that is at home where it came in."""
        client = self[home].connect(client_id or self.name(home), version, **options)
        self.pump()
        return client

    def subscriber(self, home: int, *filters: str, qos: int = 1, version: int = V5, **options: object) -> Client:
        client = self.connect(home, version, **options)
        client.subscribe(*filters, qos=qos)
        self.pump()
        return client

    def advance(self, seconds: float) -> None:
        for worker in self.workers:
            worker.advance(seconds)

    # ------------------------------------------------------------------ what travels

    def tell(self, at: int) -> int:
        """Let the others note what a worker wants; how much that was."""
        turn = self[at].broker.turn
        interests, turn.interests = turn.interests, []
        for interest in interests:
            for other in self.workers:
                if other.at != at:
                    other.broker.on_interest(at, interest)
        return len(interests)

    def gather(self, at: int) -> list[Outgoing]:
        """What a worker has for others, in order; `send` delivers it."""
        self.outgoing[at] += self[at].broker.turn.take_outgoing()
        return self.outgoing[at]

    def send(self, at: int, to: int | None = None) -> int:
        """Deliver what a worker has for the others, or for one of them; how much that was."""
        self.gather(at)
        waiting, self.outgoing[at] = self.outgoing[at], []
        sent = 0
        for each in waiting:
            if isinstance(each, Batch):
                for worker in each.workers:
                    if to in (None, worker):
                        batch = Batch(
                            [at], each.tag, each.qos, each.version, each.head, each.size, each.packets, each.expires_at
                        )
                        self[worker].broker.on_batch(batch, self[worker].now)
                        sent += 1
                left = [worker for worker in each.workers if to not in (None, worker)]
                if left:
                    self.outgoing[at].append(
                        Batch(
                            left, each.tag, each.qos, each.version, each.head, each.size, each.packets, each.expires_at
                        )
                    )
            elif to not in (None, each.worker):
                self.outgoing[at].append(each)
            else:
                self._deliver(at, each)
                sent += 1
        for worker in self.workers:
            worker.settle()
        return sent

    def _deliver(
        self, at: int, each: Stream | Forward | Outcome | Claim | Located | Release | Passage | Arrival
    ) -> None:
        there = self[each.worker]
        if isinstance(each, Stream):
            there.broker.on_stream(Stream(at, each.version, each.came_at, each.packets()), there.now)
        elif isinstance(each, Claim):
            there.broker.on_claim(Claim(at, each.client_id), there.now)
        elif isinstance(each, Located):
            there.broker.on_located(Located(at, each.client_id, each.home), there.now)
        elif isinstance(each, Release):
            there.broker.on_release(Release(at, each.client_id))
        elif isinstance(each, Passage):
            there.broker.on_passage(Passage(at, each.number, each.what), there.has_room, there.now)
        elif isinstance(each, Arrival):
            there.broker.on_arrival(Arrival(at, each.client_id, each.former, each.is_known))
        elif isinstance(each, Forward):
            came = each.message
            message = Message(came.topic, came.payload, came.qos, came.retain, came.properties, came.expires_at)
            forward = Forward(at, each.tag, message, each.plain, each.retain, each.stamp, each.shares, each.hops)
            there.broker.on_forward(forward, there.now)
        else:
            told = Outcome(at, each.tag, each.code, each.dropped, each.queued, each.sent, each.untaken)
            told.refused = each.refused
            there.broker.on_outcome(told, there.now)

    def move(self, at: int) -> int:
        """Let the connections go home that want to; how many."""
        here = self[at]
        moved, here.broker.turn.moved = here.broker.turn.moved, []
        for move in moved:
            client = here.clients.pop(move.number)
            there = self[move.worker]
            client.world = there
            if move.traveller is None:
                client.connection = there.broker.open(client.connection.peer, there.now)
            else:
                there.broker.expect(move.traveller, at, there.now)
                client.connection = there.broker.arrive(move.traveller, client.connection.peer, there.now)
            there.clients[client.connection.number] = client
            there.broker.feed(client.connection, move.data, there.now)
            there.settle()
        return len(moved)

    def ask(self, at: int) -> int:
        """Let the connections ask that would go where their messages do; how many."""
        broker = self[at].broker
        leaving, broker.turn.leaving = broker.turn.leaving, []
        return sum(broker.ask(self[at].clients[number].connection, self[at].now) for number in leaving)

    def depart(self, at: int) -> list[bool]:
        """Whether each that was answered goes."""
        broker = self[at].broker
        welcome, broker.turn.welcome = broker.turn.welcome, []
        return [broker.depart(self[at].clients[number].connection, self[at].now) for number in welcome]

    def pump(self) -> None:
        """Deliver everything until there is nothing more."""
        while sum(
            self.tell(at) + self.send(at) + self.ask(at) + len(self.depart(at)) + self.move(at)
            for at in range(len(self.workers))
        ):
            pass
