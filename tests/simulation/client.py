"""A client of the simulation: it keeps the state that a client must keep, and misbehaves as its `Behaviour` says."""

import random
from collections import Counter
from dataclasses import dataclass, field

from mqttlite.wire.constants import NEVER_EXPIRES, PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311
from mqttlite.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from mqttlite.wire.properties import NONE, Properties

TOPICS = [b"a", b"a/b", b"a/c", b"a/b/c", b"b", b"/", b"$x/b", b"r/1", b"r/2", b"s/1", b"s/2"]
FILTERS = [b"a", b"a/b", b"a/+", b"a/#", b"#", b"+", b"+/b", b"+/+", b"/#", b"$x/#", b"$x/b", b"w/#", b"w/+", b"r/#"]
SHARED = [b"$share/g/s/#", b"$share/h/s/1", b"$share/g/s/+"]


@dataclass
class Behaviour:
    """How often it misbehaves, as probabilities."""

    acknowledges: float
    twice: float
    guesses: float
    refuses: float
    reuses: float

    @classmethod
    def random(cls, rng: random.Random) -> "Behaviour":
        return cls(
            acknowledges=rng.choice([1.0, 1.0, 0.7, 0.2, 0.0]),
            twice=rng.choice([0.0, 0.0, 0.2]),
            guesses=rng.choice([0.0, 0.0, 0.05]),
            refuses=rng.choice([0.0, 0.0, 0.2]),
            reuses=rng.choice([0.0, 0.0, 0.1]),
        )


WELL_BEHAVED = Behaviour(1.0, 0.0, 0.0, 0.0, 0.0)


@dataclass
class SimulatedClient:
    name: str
    rng: random.Random
    behaviour: Behaviour
    max_packet: int | None
    generation: int = 0
    """The generation of the session that its latest CONNACK was about."""
    published: int = 0
    last_packet_id: int = 0
    unfinished: dict[int, Publish | None] = field(default_factory=dict)
    """Its own messages by packet identifier; None: the broker has it, PUBCOMP is still to come."""
    unreleased: dict[int, bytes] = field(default_factory=dict)
    read: dict[int, Counter[bytes]] = field(default_factory=dict)
    """What it read in each of its sessions; a QoS 2 message once for each identifier until that is released."""
    deferred: list[Ack] = field(default_factory=list)
    """Acknowledgements that it sends later."""
    again: list[Publish] = field(default_factory=list)
    """What it has still to send again on this connection."""
    aliases: dict[bytes, int] = field(default_factory=dict)
    alias_maximum: int = 0
    receive_maximum: int = 65_535
    guessed: bool = False
    """Whether it ever acknowledged a message that it may not have received."""

    # ------------------------------------------------------------------ what it sends

    def connect_packet(self, well_behaved: bool) -> tuple[int, Connect]:
        """Protocol version and CONNECT."""
        rng = self.rng
        self.deferred = []
        version = V5 if self.max_packet or rng.random() < 0.6 else V311
        clean = not well_behaved and rng.random() < 0.2
        keep_alive = 0 if well_behaved else rng.choice([0, 0, 10, 60, 1_000])
        will = None if well_behaved or rng.random() < 0.6 else self._will(version)
        properties = NONE
        if version == V5:
            expiry = NEVER_EXPIRES if well_behaved else rng.choice([None, 0, 5, 300, NEVER_EXPIRES, NEVER_EXPIRES])
            properties = Properties(
                session_expiry_interval=expiry,
                receive_maximum=rng.choice([None, 1, 2, 5]),
                maximum_packet_size=self.max_packet,
                topic_alias_maximum=rng.choice([None, 0, 1, 3]),
            )
        return version, Connect(self.name, version, clean, keep_alive, will=will, properties=properties)

    def _will(self, version: int) -> Will:
        rng = self.rng
        properties = NONE
        if version == V5:
            properties = Properties(
                will_delay_interval=rng.choice([None, 0, 3, 100]), message_expiry_interval=rng.choice([None, None, 50])
            )
        return Will(f"w/{self.name}".encode(), self._payload(), rng.randint(0, 2), False, properties)

    def _payload(self) -> bytes:
        self.published += 1
        padding = self.rng.choice([0, 0, 0, 0, 5, 60])
        return f"{self.name}:{self.published}:".encode() + b"." * padding

    def subscribe(self) -> Packet:
        rng = self.rng
        packet_id = rng.randint(1, 9)
        if rng.random() < 0.2:
            return Unsubscribe(packet_id, tuple(rng.sample(FILTERS + SHARED, rng.randint(1, 4))))
        requests = []
        for _ in range(rng.choice([1, 1, 2])):
            shared = rng.random() < 0.15
            requests.append(SubscriptionRequest(rng.choice(SHARED if shared else FILTERS), rng.randint(0, 2)))
        return Subscribe(packet_id, tuple(requests))

    def subscribe5(self) -> Packet:
        """The same with what only 5.0 has."""
        packet = self.subscribe()
        if not isinstance(packet, Subscribe):
            return packet
        rng = self.rng
        requests = tuple(
            SubscriptionRequest(
                each.topic_filter,
                each.qos,
                each.topic_filter not in SHARED and rng.random() < 0.1,
                rng.random() < 0.3,
                rng.randint(0, 2),
            )
            for each in packet.requests
        )
        identifier = rng.choice([0, 0, 0, 7, 300])
        return Subscribe(
            packet.packet_id, requests, Properties(subscription_identifiers=[identifier]) if identifier else NONE
        )

    def message(self, version: int) -> Publish | None:
        """The next message; None where its own limit, or the broker's Receive Maximum, allows none."""
        rng = self.rng
        topic = rng.choice(TOPICS)
        qos = rng.choice([0, 1, 1, 2, 2])
        packet_id = 0
        if qos:
            if len(self.unfinished) >= 50:
                return None
            if len(self.unfinished) >= self.receive_maximum and rng.random() >= self.behaviour.guesses:
                return None
            packet_id = self._packet_id()
        retain = topic.startswith(b"r/") and rng.random() < 0.7
        payload = self._payload() if not retain or rng.random() < 0.8 else b""
        properties = NONE
        wire_topic = topic
        if version == V5 and rng.random() < 0.4:
            alias = None
            if self.alias_maximum and rng.random() < 0.6:
                alias = self.aliases.get(topic)
                if alias is None:
                    alias = rng.randint(1, self.alias_maximum)
                    self.aliases = {other: number for other, number in self.aliases.items() if number != alias}
                    self.aliases[topic] = alias
                else:
                    wire_topic = b""
            properties = Properties(topic_alias=alias, message_expiry_interval=rng.choice([None, None, 2, 100]))
        if qos:
            self.unfinished[packet_id] = Publish(topic, payload, qos, retain, packet_id=packet_id)
        return Publish(wire_topic, payload, qos, retain, packet_id=packet_id, properties=properties)

    def _packet_id(self) -> int:
        if self.unfinished and self.rng.random() < self.behaviour.reuses:
            return self.rng.choice(list(self.unfinished))
        packet_id = self.last_packet_id % 30 + 1
        while packet_id in self.unfinished:
            packet_id = packet_id % 60 + 1
        self.last_packet_id = packet_id
        return packet_id

    def guess(self) -> Packet:
        """A packet that breaks the protocol or answers nothing."""
        self.guessed = True
        rng = self.rng
        return rng.choice(
            [
                Ack(rng.choice([PUBACK, PUBREL, PUBCOMP]), rng.randint(1, 8)),
                Ack(PUBREC, rng.randint(60_000, 60_008)),  # never one in use: what follows would be about that
                Pingreq(),
                Publish(b"", self._payload(), 0, properties=Properties(topic_alias=rng.choice([1, 60_000]))),
                Connect(self.name, V5),
            ]
        )

    def disconnect_packet(self, version: int) -> Disconnect:
        rng = self.rng
        if version != V5:
            return Disconnect()
        expiry = rng.choice([None, None, 0, 5, NEVER_EXPIRES])
        properties = NONE if expiry is None else Properties(session_expiry_interval=expiry)
        return Disconnect(rng.choice([0, 0, 4]), properties)

    # ------------------------------------------------------------------ what it receives

    def on_packet(self, packet: Packet, version: int, generation: int) -> list[Packet]:
        """What it answers to a packet."""
        if isinstance(packet, Connack):
            return self._on_connack(packet, generation)
        if isinstance(packet, Publish):
            return self._some(self._on_publish(packet, version))
        if isinstance(packet, Ack):
            return self._on_ack(packet)
        return []

    def _on_connack(self, packet: Connack, generation: int) -> list[Packet]:
        self.aliases = {}
        self.deferred = []
        if packet.reason_code:
            return []
        self.alias_maximum = packet.properties.topic_alias_maximum or 0
        self.receive_maximum = packet.properties.receive_maximum or 65_535
        if not packet.session_present or generation != self.generation:
            self.unfinished = {}
            self.unreleased = {}
        self.generation = generation
        self.read.setdefault(generation, Counter())
        released = [packet_id for packet_id, message in self.unfinished.items() if message is None]
        if (
            self.behaviour is WELL_BEHAVED
        ):  # it releases identifiers it has no record of, and gives up messages above Receive Maximum
            if len(self.unfinished) > self.receive_maximum or self.receive_maximum < 60:
                self.unfinished = {}
            released = [packet_id for packet_id in range(1, 61) if self.unfinished.get(packet_id) is None]
        self.again = [
            Publish(message.topic, message.payload, message.qos, message.retain, True, packet_id)
            for packet_id, message in self.unfinished.items()
            if message is not None
        ]
        now = max(0, self.receive_maximum - (len(self.unfinished) - len(self.again)))
        return [*[Ack(PUBREL, packet_id) for packet_id in released], *self._more(now)]

    def _more(self, messages: int) -> list[Publish]:
        """What it sends again, as the broker's Receive Maximum allows."""
        more, self.again = self.again[:messages], self.again[messages:]
        return more

    def _on_publish(self, packet: Publish, version: int) -> Ack | None:
        counted = packet.qos < 2 or packet.packet_id not in self.unreleased
        refused = packet.qos == 2 and counted and version == V5 and self.rng.random() < self.behaviour.refuses
        if counted and not refused:
            self.read[self.generation][packet.payload] += 1
        if packet.qos == 0:
            return None
        if packet.qos == 1:
            return Ack(PUBACK, packet.packet_id)
        if refused:
            return Ack(PUBREC, packet.packet_id, 0x97)
        self.unreleased[packet.packet_id] = packet.payload
        return Ack(PUBREC, packet.packet_id)

    def _on_ack(self, packet: Ack) -> list[Packet]:
        packet_id = packet.packet_id
        message = self.unfinished.get(packet_id)
        if packet.packet_type == PUBACK:
            if message is not None and message.qos == 1:
                del self.unfinished[packet_id]
                return [*self._more(1)]
        elif packet.packet_type == PUBREC:
            if packet.reason_code >= 0x80:
                self.unfinished.pop(packet_id, None)
                return [*self._more(1)]
            if packet_id in self.unfinished:
                self.unfinished[packet_id] = None
            return self._some(Ack(PUBREL, packet_id))
        elif packet.packet_type == PUBCOMP:
            if packet_id in self.unfinished and message is None:
                del self.unfinished[packet_id]
                return [*self._more(1)]
        else:
            self.unreleased.pop(packet_id, None)
            return self._some(Ack(PUBCOMP, packet_id))
        return []

    def _some(self, ack: Ack | None) -> list[Packet]:
        """An acknowledgement now, later or never, and perhaps twice."""
        if ack is None:
            return []
        rng = self.rng
        if rng.random() >= self.behaviour.acknowledges:
            if rng.random() < 0.5 and ack.reason_code < 0x80:
                self.deferred.append(ack)
            return []
        return [ack, ack] if ack.packet_type != PUBREL and rng.random() < self.behaviour.twice else [ack]
