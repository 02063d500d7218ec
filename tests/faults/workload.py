"""What sessions do, at random but as the core would say it, and what a store must have after it.

Invariant: a payload is committed once, for one session and sequence (or for those that share it), so that a test can
tell where it belongs.
"""

import hashlib
import random
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from mqttlite.core.changes import (
    IF_LOST,
    Change,
    EndSession,
    Enqueue,
    RemoveReceived,
    RemoveReleased,
    RemoveRetained,
    RemoveSubscription,
    RemoveWill,
    SaveReceived,
    SaveReleased,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Sent,
    Settled,
)
from mqttlite.core.identity import Identity
from mqttlite.core.log_changes import Append, KeepFrom, SaveDeadline, SaveRecord
from mqttlite.core.message import Delivery, Message, StoredOrigin
from mqttlite.core.ports import Store
from mqttlite.core.route.subscription import Subscription
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.packets import Will
from mqttlite.wire.properties import encode_properties
from tests.support.stores import everything

CLIENTS: Final = 4

Contents = dict[str, Any]


class _Client:
    def __init__(self) -> None:
        self.waits: deque[tuple[int, int]] = deque()  # sequence and QoS
        self.sent: dict[int, tuple[int, int]] = {}  # packet identifier: sequence and QoS
        self.released: list[int] = []
        self.received: list[int] = []
        self.next = 0
        self.lowest = 0
        self.last_id = 0

    def packet_id(self) -> int:
        self.last_id += 1
        return self.last_id


class Workload:
    """`commit` gives the changes of the next commit; `longest` is that of a payload."""

    def __init__(self, rng: random.Random, longest: int = 3_000) -> None:
        self._rng: Final = rng
        self._longest: Final = longest
        self._clients: dict[str, _Client] = {}
        self._payloads = 0

    def commit(self, most: int = 6) -> list[Change]:
        changes: list[Change] = []
        for _ in range(self._rng.randint(1, most)):
            changes += self._step()
        return changes

    def backlog(self, client_id: str, messages: int) -> list[Change]:
        """Many messages for one session."""
        client = self._clients.get(client_id)
        changes: list[Change] = [] if client else [self._begin(client_id)]
        return changes + [change for _ in range(messages) for change in self._enqueue([client_id])]

    def _step(self) -> list[Change]:
        rng = self._rng
        client_id = f"client-{rng.randrange(CLIENTS)}"
        client = self._clients.get(client_id)
        if client is None:
            return [self._begin(client_id)]
        step = rng.random()
        if step < 0.4:
            return self._enqueue([client_id])
        if step < 0.48:
            return self._enqueue(sorted(self._clients))
        if step < 0.8:
            return self._deliver(client_id, client)
        return self._other(client_id, client)

    def _begin(self, client_id: str) -> Change:
        self._clients[client_id] = _Client()
        return SaveSession(
            client_id, self._rng.choice([60, 0xFFFF_FFFF]), 0.0, Identity(self._rng.choice([None, "someone"])), 5
        )

    def _enqueue(self, client_ids: list[str]) -> list[Change]:
        rng = self._rng
        self._payloads += 1
        payload = b"%s %d " % (",".join(client_ids).encode(), self._payloads)
        payload += rng.randbytes(rng.choice([0, 10, 200, rng.randrange(self._longest)]))
        qos = rng.choice([1, 2])
        identifiers = rng.choice([(), (7,), (1, 300)])
        origin = StoredOrigin(b"group\0filter") if rng.random() < 0.1 else None
        delivery = Delivery(Message(b"a/topic", payload, qos), qos, rng.random() < 0.1, identifiers, origin)
        changes: list[Change] = []
        for client_id in client_ids:
            client = self._clients[client_id]
            sequence, packet_id = client.next, 0
            if len(client_ids) == 1 and client.waits and rng.random() < 0.1:
                client.lowest -= 1
                sequence, packet_id = client.lowest, client.packet_id()
            elif not client.waits and rng.random() < 0.5:
                packet_id = client.packet_id()
            if sequence >= 0:
                client.next += 1
            if packet_id:
                client.sent[packet_id] = sequence, qos
            else:
                client.waits.append((sequence, qos))
            changes.append(Enqueue(client_id, sequence, delivery, packet_id))
        return changes

    def _deliver(self, client_id: str, client: _Client) -> list[Change]:
        rng = self._rng
        step = rng.random()
        if client.waits and step < 0.45:
            packet_id = client.packet_id()
            client.sent[packet_id] = client.waits.popleft()
            return [Sent(client_id, client.sent[packet_id][0], packet_id)]
        if client.waits and step < 0.5:
            return [Settled(client_id, client.waits.popleft()[0])]
        if client.sent and step < 0.9:
            packet_id = rng.choice(list(client.sent))
            sequence, qos = client.sent.pop(packet_id)
            if qos == 1:
                return [Settled(client_id, sequence)]
            client.released.append(packet_id)
            return [SaveReleased(client_id, sequence, packet_id)]
        if client.released:
            return [RemoveReleased(client_id, client.released.pop(0))]
        return []

    def _other(self, client_id: str, client: _Client) -> list[Change]:
        rng = self._rng
        topic = b"filter/%d" % rng.randrange(4)
        step = rng.randrange(10)
        if step == 0:
            del self._clients[client_id]
            return [EndSession(client_id)]
        if step == 1:
            return [SaveSession(client_id, rng.randrange(1_000), 0.0, Identity("another"), 4)]
        if step in (2, 3):
            return [SaveSubscription(client_id, Subscription(client_id, topic, rng.randrange(3), False, True, 7))]
        if step == 4:
            return [RemoveSubscription(client_id, topic)]
        if step == 5:
            will = Will(b"will/topic", rng.randbytes(rng.randrange(100)), 1)
            return [SaveWill(client_id, will, rng.choice([IF_LOST, float(rng.randrange(1_000_000))]))]
        if step == 6:
            return [RemoveWill(client_id)]
        if step == 7:
            return [SaveRetained(Message(topic, rng.randbytes(rng.randrange(5_000)), 1, True))]
        if step == 8:
            return [RemoveRetained(topic)]
        if client.received and rng.random() < 0.5:
            return [RemoveReceived(client_id, client.received.pop(0))]
        client.received.append(client.packet_id())
        return [SaveReceived(client_id, client.received[-1])]


# ---------------------------------------------------------------------- what a store has


def described(delivery: Delivery) -> tuple[object, ...]:
    """All that a message says, to be compared."""
    message = delivery.message
    return (
        delivery.qos,
        delivery.retain,
        tuple(delivery.identifiers),
        None if delivery.origin is None else delivery.origin.name,
        *_message(message),
    )


def _message(message: Message) -> tuple[object, ...]:
    properties = encode_properties(message.properties, PUBLISH)
    return message.topic, seen(message.payload), message.qos, message.retain, properties


def seen(payload: bytes) -> str:
    """A payload as a failing test can show it."""
    return f"{payload[:30]!r} {len(payload)} {hashlib.blake2s(payload, digest_size=8).hexdigest()}"


def contents_of(changes: Iterable[Change]) -> Contents:
    """What the changes of `everything` amount to, whatever order a store gives its sessions and topics in."""
    contents: Contents = {"retained": {}}
    for change in changes:
        if isinstance(change, SaveRetained):
            contents["retained"][change.message.topic] = _message(change.message)
            continue
        assert not isinstance(change, RemoveRetained)
        if isinstance(change, SaveRecord):
            contents[change.key] = {"saved": change.data, "sent": [], "waits": [], "due": {}}
            continue
        if isinstance(change, SaveDeadline):
            contents[change.key]["due"][change.offset] = round(change.due_at)
            continue
        if isinstance(change, KeepFrom):
            contents[change.key]["kept from"] = change.offset
            continue
        if isinstance(change, Append):
            entry = change.offset, change.mark, described(change.delivery)
            contents[change.key]["sent" if change.mark else "waits"].append(entry)
            continue
        client_id = change.client_id
        if isinstance(change, SaveSession):
            assert client_id not in contents, "a session is loaded once"
            saved = change.expiry_interval, change.expires_at, change.identity.username, change.version
            contents[client_id] = {
                "saved": saved,
                "sent": [],
                "waits": [],
                "subscriptions": {},
                "will": None,
                "received": set(),
                "released": set(),
            }
            continue
        session = contents[client_id]
        if isinstance(change, Enqueue):
            entry = change.sequence, change.packet_id, described(change.delivery)
            session["sent" if change.packet_id else "waits"].append(entry)
        elif isinstance(change, SaveSubscription):
            of = change.subscription
            session["subscriptions"][of.topic_filter] = of.qos, of.no_local, of.retain_as_published, of.identifier
        elif isinstance(change, SaveWill):
            session["will"] = change.will, round(change.due_at)
        elif isinstance(change, SaveReceived):
            session["received"].add(change.packet_id)
        else:
            assert isinstance(change, SaveReleased)
            session["released"].add(change.packet_id)
    return contents


async def contents(store: Store) -> Contents:
    """What a store has."""
    return contents_of(await everything(store))


async def histories(commits: Iterable[list[Change]]) -> list[Contents]:
    """What a store has before the first commit, after it, after the second …"""
    model = MemoryStore(pages=True)
    states = [await contents(model)]
    for changes in commits:
        model.commit(changes)
        states.append(await contents(model))
    return states


def differences(found: Contents, expected: Contents) -> str:
    """Where two contents differ, in some lines."""
    lines = []
    for name in {**expected, **found}:
        mine, theirs = found.get(name), expected.get(name)
        if mine == theirs:
            continue
        if mine is None or theirs is None:
            lines.append(f"{name}: {'missing' if mine is None else 'not expected'}")
            continue
        lines += [
            f"{name} {key}: {mine.get(key)} but not {theirs.get(key)}" for key in theirs if mine.get(key) != theirs[key]
        ]
        lines += [f"{name} {key}: not expected" for key in mine if key not in theirs]
    return "\n".join(line[:1_000] for line in lines)
