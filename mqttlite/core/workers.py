"""What one worker of a broker knows of the others, and what it tells them.

A broker may be several processes. A client is at home with one of them: where it first came in, as long as it has a
session or a connection there. Another connection of it that comes in elsewhere moves there. Where clients are at home
is known to the keepers of their identifiers, workers chosen by these. A worker tells the others which filters it has
subscribers for, and is sent messages that match: once, however many subscribers there are. What leaves is in
`Turn.outgoing`, in order. Invariants: what was said last of a filter in `Turn.interests` is so; a session is only made
where its client is at home, which is in one place at most.
"""

import zlib
from collections import deque
from typing import Final, final

from mqttlite.core.connection import Postponed
from mqttlite.core.forwards import (
    ASK,
    NOWHERE,
    Arrival,
    Batch,
    Claim,
    Forward,
    Interest,
    Located,
    Outgoing,
    Passage,
    Release,
    Stream,
)
from mqttlite.core.limits import (
    FOLLOW_BYTES,
    FOLLOW_CHUNKS,
    FOLLOW_MESSAGES,
    MAX_STAMPS,
    STAMPS_S,
    STREAM_BYTES,
    STREAM_S,
)
from mqttlite.core.message import Message
from mqttlite.core.session import Session
from mqttlite.core.turn import Turn

_LATER_S: Final = 1e-6
"""Clocks of loops stand still for a moment: what comes after is later by so much at least."""

ASKED: Final = -1
"""Where a client is at home, as long as its keeper has not said it."""

_NOTHING_UNDECIDED: Final[dict[int, Postponed]] = {}


@final
class Workers:
    """The view of worker `index` of `count`."""

    __slots__ = (
        "_departed",
        "_forgotten",
        "_gone",
        "_here",
        "_homes",
        "_stamps",
        "_turn",
        "_unanswered",
        "_undecided",
        "_unknown",
        "_waiting",
        "_wanted",
        "asked",
        "count",
        "follow_bytes",
        "follow_chunks",
        "follow_messages",
        "index",
        "led",
        "led_to",
        "postponed",
        "tag",
    )

    def __init__(self, index: int, count: int, turn: Turn) -> None:
        self.index: Final = index
        self.count: Final = count
        self._turn: Final = turn
        self._wanted: Final[dict[bytes, int]] = {}
        self._stamps: Final[dict[bytes, tuple[float, int]]] = {}
        self._forgotten: Final[deque[tuple[float, bytes]]] = deque()
        self._here: Final[dict[bytes, int]] = {}
        """The clients that are at home here, and how many connections rely on it."""
        self._homes: Final[dict[bytes, int]] = {}
        """Where clients are at home whose keeper we are."""
        self._waiting: Final[dict[bytes, list[int]]] = {}
        """The connections of clients whose keeper was asked."""
        self.tag = 0
        self.asked = 0
        """How many workers the latest message went to that tell, under `tag`, what became of it."""
        self.postponed: Final[dict[int, Postponed]] = {}
        """Acknowledgements that wait for an `Outcome`, by tag."""
        # Those of QoS 2 by identifier: a client may have thousands of them, and ask for each by sending it again.
        self._undecided: Final[dict[Session, dict[int, Postponed]]] = {}
        self.follow_bytes = FOLLOW_BYTES
        self.follow_messages = FOLLOW_MESSAGES
        self.follow_chunks = FOLLOW_CHUNKS
        self.led_to = NOWHERE
        self.led = 0
        """Of the chunk that is being read, how many messages went to that worker alone."""
        self._departed: Final[dict[bytes, int]] = {}
        """Clients that followed their messages, and where, until that is known to their keepers."""
        self._unknown: Final[dict[bytes, int]] = {}
        """Clients that came here so, and how often, until that is known to theirs."""
        self._unanswered: Final[dict[int, list[int]]] = {}
        """The workers that have yet to answer for a connection that would go, by its number."""
        self._gone: Final[list[int]] = []
        """The workers that have left, and answer no more."""

    @property
    def others(self) -> list[int]:
        return [worker for worker in range(self.count) if worker != self.index]

    # ------------------------------------------------------------------ where clients are at home

    def keeper(self, client_id: bytes) -> int:
        """The worker that knows where a client is at home."""
        return zlib.crc32(client_id) % self.count

    def locate(self, client_id: bytes, number: int) -> int:
        """Where the client of connection `number` is at home: here, from now on, if nowhere else.

        `ASKED`, where another worker must say; then `on_located` names that connection.
        """
        if client_id in self._here:
            return self.index
        if client_id in self._departed:
            return self._departed[client_id]
        keeper = self.keeper(client_id)
        if keeper == self.index:
            home = self._homes.setdefault(client_id, self.index)
            if home == self.index:
                self._here[client_id] = 0
            return home
        waiting = self._waiting.get(client_id)
        if waiting is not None:
            waiting.append(number)
        else:
            self._waiting[client_id] = [number]
            self.send(Claim(keeper, client_id), len(client_id))
        return ASKED

    def on_claim(self, claim: Claim) -> None:
        """Another worker asks for the home of one of our clients."""
        home = self._homes.setdefault(claim.client_id, claim.worker)
        self.send(Located(claim.worker, claim.client_id, home), len(claim.client_id))

    def on_located(self, located: Located) -> list[int]:
        """The answer to a claim: the connections that wait for it."""
        if located.home == self.index:
            self._here[located.client_id] = 0
        return self._waiting.pop(located.client_id, [])

    def on_release(self, release: Release) -> None:
        """A client is no longer at home where it was."""
        del self._homes[release.client_id]

    def restored(self, client_id: bytes) -> None:
        """A client has a session here from a store: that its keeper is to know."""
        self._here[client_id] = 0
        keeper = self.keeper(client_id)
        if keeper == self.index:
            self._homes[client_id] = self.index
        else:
            self.send(Claim(keeper, client_id), len(client_id))

    def is_here(self, client_id: bytes) -> bool:
        """Whether a client is at home here."""
        return client_id in self._here

    def use(self, client_id: bytes) -> None:
        """A connection relies on its client being at home here, until `unuse`."""
        self._here[client_id] += 1

    def unuse(self, client_id: bytes, has_session: bool) -> None:
        """One connection fewer does."""
        self._here[client_id] -= 1
        self.end_without_session(client_id, has_session)

    def end_without_session(self, client_id: bytes, has_session: bool) -> None:
        """A client without connections and session is at home nowhere."""
        if has_session or self._here[client_id]:
            return
        del self._here[client_id]
        keeper = self.keeper(client_id)
        if keeper == self.index:
            del self._homes[client_id]
        else:
            self.send(Release(keeper, client_id), len(client_id))

    # ------------------------------------------------------------------ clients that follow their messages

    def lead(self, only: int, messages: int) -> None:
        """Messages went to other workers; `only` to that one, and to nobody here."""
        if self.led == 0:
            self.led_to = only
        if only == self.led_to != NOWHERE:
            self.led += messages

    def ask(self, number: int) -> None:
        """Whether a connection may go: all workers may have been sent messages that must stay ahead of it."""
        self._unanswered[number] = [worker for worker in self.others if worker not in self._gone]
        for worker in self._unanswered[number]:
            self.send(Passage(worker, number, ASK), 0)

    def waits_for_answers(self, number: int) -> bool:
        """Whether some of them have yet to answer."""
        return number in self._unanswered

    def on_answer(self, number: int, worker: int) -> bool:
        """Whether that was the last."""
        self._unanswered[number].remove(worker)
        if self._unanswered[number]:
            return False
        del self._unanswered[number]
        return True

    def is_gone(self, worker: int) -> bool:
        """Whether a worker has left."""
        return worker in self._gone

    def on_gone(self, worker: int) -> list[int]:
        """A worker has left: the connections for which it will not answer."""
        self._gone.append(worker)
        return [number for number, workers in self._unanswered.items() if worker in workers]

    def may_depart(self, client_id: bytes) -> bool:
        """Whether all that relies on a client's home is one connection here, and its keeper knows that."""
        return self._here[client_id] == 1 and client_id not in self._departed and client_id not in self._unknown

    def depart(self, client_id: bytes, worker: int) -> None:
        """A client goes on at another worker. Its connections that come in here follow it."""
        del self._here[client_id]
        self._departed[client_id] = worker

    def stay(self, client_id: bytes) -> None:
        """It did not, though: the opposite of `depart`, before anything else came in."""
        del self._departed[client_id]
        self._here[client_id] = 1

    def arrive(self, client_id: bytes, former: int) -> None:
        """A client is at home here from now on, and a connection relies on that until `unuse`."""
        self._here[client_id] = self._here.get(client_id, 0) + 1
        self._departed.pop(client_id, None)  # it was here before
        keeper = self.keeper(client_id)
        if keeper == self.index:
            self._homes[client_id] = self.index
            self.send(Arrival(former, client_id, former, True), len(client_id))
        else:
            self._unknown[client_id] = self._unknown.get(client_id, 0) + 1
            self.send(Arrival(keeper, client_id, former, False), len(client_id))

    def on_arrival(self, arrival: Arrival) -> None:
        """The keeper knows that a client went; or we are he, and it is another worker that tells us."""
        client_id = arrival.client_id
        if not arrival.is_known:
            self._homes[client_id] = arrival.worker
            self.send(Arrival(arrival.worker, client_id, arrival.former, True), len(client_id))
            if arrival.former != self.index:
                self.send(Arrival(arrival.former, client_id, arrival.former, True), len(client_id))
                return
        if arrival.former == self.index:
            self._departed.pop(client_id, None)
        else:
            self._unknown[client_id] -= 1
            if self._unknown[client_id] == 0:
                del self._unknown[client_id]

    # ------------------------------------------------------------------ interests

    def want(self, topic_filter: bytes) -> None:
        """There is one more subscription here: the first of its filter is told."""
        wanted = self._wanted.get(topic_filter, 0)
        self._wanted[topic_filter] = wanted + 1
        if wanted == 0:
            self._turn.interests.append(Interest(topic_filter, 1, 1))

    def unwant(self, topic_filter: bytes) -> None:
        """There is one less: the last is told."""
        wanted = self._wanted[topic_filter] - 1
        if wanted:
            self._wanted[topic_filter] = wanted
        else:
            del self._wanted[topic_filter]
            self._turn.interests.append(Interest(topic_filter, 0, 0))

    def tell_share(self, name: bytes, members: int, online: int) -> None:
        """The members of a shared subscription here are other than before."""
        self._turn.interests.append(Interest(name, members, online))

    # ------------------------------------------------------------------ messages

    def send(self, outgoing: Outgoing, size: int) -> None:
        """Send something behind all that was sent before."""
        turn = self._turn
        if turn.streams:
            for worker in outgoing.workers if isinstance(outgoing, Batch) else [outgoing.worker]:
                turn.streams.pop(worker, None)
        turn.outgoing.append(outgoing)
        turn.forwards += 1
        turn.pending_bytes += size

    def forward(
        self, message: Message, remotes: list[int], chosen: dict[int, list[bytes]], retain: bool, asks: bool
    ) -> None:
        """Send a message to the workers that have subscribers, and what is retained to all.

        `chosen` are shared subscriptions whose next member is at another worker.
        """
        self.asked = 0
        stamp = self._stamps.get(message.topic, (0.0, 0))[0] if retain else 0.0
        workers = self.others if retain else sorted({*remotes, *chosen})
        if asks:
            self.tag += 1
            self.asked = len(workers)
        for worker in workers:
            plain = retain or worker in remotes
            shares = chosen.get(worker, [])
            tag = self.tag if asks else 0
            self.send(Forward(worker, tag, message, plain, retain, stamp, shares), message.size())

    def tell_removed(self, topic: bytes) -> None:
        """What was retained of a topic is so no longer, though nobody is told of a message."""
        removal = Message(topic, b"", 0, True)
        for worker in self.others:
            self.send(Forward(worker, 0, removal, False, True, self._stamps[topic][0], []), removal.size())

    def forward_batch(
        self, remotes: list[int], qos: int, version: int, head: int, size: int, packets: bytes, expires_at: float
    ) -> None:
        """Send QoS 1 or 2 packets to the workers that have subscribers; those tell what became of them."""
        self.tag += 1
        self.asked = len(remotes)
        batch = Batch(remotes, self.tag, qos, version, head, size, packets, expires_at)
        self.send(batch, len(packets) * len(remotes))

    def forward_stream(self, remotes: list[int], version: int, packets: bytes) -> None:
        """Send QoS 0 packets to the workers that have subscribers, together with those before."""
        turn = self._turn
        streams = turn.streams
        size = len(packets)
        for worker in remotes:
            stream = streams.get(worker)
            if (
                stream is not None
                and stream.version == version
                and stream.size + size <= STREAM_BYTES
                and turn.now - stream.came_at <= STREAM_S
            ):
                stream.add(packets)
            else:
                stream = streams[worker] = Stream(worker, version, turn.now, packets)
                turn.outgoing.append(stream)
        turn.forwards += 1
        turn.pending_bytes += size * len(remotes)

    def await_outcomes(self, postponed: Postponed) -> None:
        """The latest message, or run, has an acknowledgement that waits for the workers it went to."""
        self.postponed[self.tag] = postponed
        if postponed.qos == 2:
            undecided = self._undecided.setdefault(postponed.session, {})
            for number in range(postponed.ids.count):
                undecided[postponed.ids.get(number)] = postponed

    def forget_outcomes(self, tag: int) -> None:
        """All of them have told."""
        postponed = self.postponed.pop(tag)
        if postponed.qos == 2:
            undecided = self._undecided[postponed.session]
            for number in range(postponed.ids.count):
                packet_id = postponed.ids.get(number)
                if undecided.get(packet_id) is postponed:  # else the client let it go and used it again
                    del undecided[packet_id]
            if not undecided:
                del self._undecided[postponed.session]

    def undecided(self, session: Session, packet_id: int) -> Postponed | None:
        """The acknowledgement that is still to be decided for a client's own QoS 2 identifier, if there is one."""
        return self._undecided.get(session, _NOTHING_UNDECIDED).get(packet_id)

    # ------------------------------------------------------------------ which retained message is the latest

    def stamp(self, topic: bytes) -> None:
        """A message is retained here, or removed, later than all that is known of its topic."""
        known = self._stamps.get(topic, (0.0, 0))[0]
        self.is_latest(topic, max(self._turn.now, known + _LATER_S), self.index)

    def is_latest(self, topic: bytes, stamp: float, worker: int) -> bool:
        """Whether a retained message, or the removal of one, is later than what is known of its topic; then noted.

        Two workers may retain at once, and each hears of the other's later: all of them must keep the same.
        """
        known = self._stamps.get(topic)
        if known is not None and known > (stamp, worker):
            return False
        self._stamps[topic] = (stamp, worker)
        if known is None:
            self._forgotten.append((stamp, topic))
        while self._forgotten[0][0] < stamp - STAMPS_S:
            noted, old = self._forgotten.popleft()
            at = self._stamps[old][0]
            if at > noted:  # it came or went again since
                self._forgotten.append((at, old))
            else:  # by now everybody has heard of it
                del self._stamps[old]
        if len(self._stamps) > MAX_STAMPS:
            del self._stamps[self._forgotten.popleft()[1]]
        return True

    @property
    def stamps(self) -> int:
        """Topics whose latest retained message is remembered."""
        return len(self._stamps)
