"""`Nodes`: this broker as one of several. It finds the others, and brings what they say to who knows of it.

Invariant: nothing that came from one node goes on to another.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from mqttlite import build
from mqttlite.config import ConfigError, ListenerOptions
from mqttlite.core.broker import Broker
from mqttlite.core.message_numbers import MICROSECONDS
from mqttlite.extensions.nodes.blobs import (
    MINOR,
    NO_LOAD,
    VERSION,
    Blob,
    Bytes,
    Close,
    Data,
    End,
    Fence,
    Fenced,
    Hello,
    Leave,
    Load,
    More,
    Note,
    Notes,
    Open,
    Part,
    Reach,
    Reached,
    Room,
    Spent,
    Still,
    decode,
    decode_newer,
    encode,
)
from mqttlite.extensions.nodes.calls import Calls
from mqttlite.extensions.nodes.carrier import Carrier, CarrierLost
from mqttlite.extensions.nodes.draining import Drain
from mqttlite.extensions.nodes.far import Far
from mqttlite.extensions.nodes.fences import Fences
from mqttlite.extensions.nodes.held_document import DocumentState
from mqttlite.extensions.nodes.locating import Locating
from mqttlite.extensions.nodes.node_state import NodeState
from mqttlite.extensions.nodes.options import is_name
from mqttlite.extensions.nodes.passing import TakesIn
from mqttlite.extensions.nodes.peer import SILENT_S, Peer
from mqttlite.extensions.nodes.pipes import Pipes
from mqttlite.extensions.nodes.places import Feature
from mqttlite.extensions.nodes.sessions import CLIENT_ID_PREFIX
from mqttlite.extensions.nodes.spending import Spending
from mqttlite.extensions.nodes.subacks import Subacks
from mqttlite.extensions.nodes.telling import Telling
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.telemetry.figures import Values

HELLO_S: Final = 1.0
"""How often a node says that it runs."""

TICK_S: Final = 0.25
"""How often a node looks whether others are silent."""

FLUSH_S: Final = 0.001
"""The least time between two blobs for a node: one of a thousand messages costs little more than one of a single
message."""

AWAY_S: Final = 5.0
"""After so long without a node there is an alarm. A node that is started again takes less."""

ANSWER_S: Final = 0.25
"""How long a start waits for the answer of nodes that run."""

MEET_S: Final = 2.0
"""How long it waits at most until they are connected, and each knows all topic filters of the other."""

_RUN_BITS: Final = 10
"""A run is a number that grows with the time of the start, with so many random bits behind it."""

MAX_NODES: Final = 64
"""The most other nodes. Further ones are not talked to."""

_log = logging.getLogger("mqttlite.nodes")


class Nodes:
    """Make it when the broker has its sessions back, and before it publishes anything. `keep_s` as in the options.
    `on_alarm` is told which nodes are away, and when none is any more."""

    def __init__(
        self,
        node: str,
        keep_s: int,
        core: Broker,
        driver: LoopDriver,
        carrier: Carrier,
        on_alarm: Callable[[bool, str], None],
        features: Sequence[Feature] = (),
        address: str = "",
        drain_s: float = 30.0,
        is_machine: bool = False,
    ) -> None:
        """`address` as in the options. In `drain_s` a node that drains sends all clients away, if they are many.
        `is_machine`: the node is several machines of which one serves, now this one."""
        self.node: Final = node
        self._is_machine: Final = is_machine
        self._address: Final = address
        self._load = NO_LOAD
        self.documents: Callable[[], list[DocumentState]] = list
        """What all nodes have of what operators change at run time."""
        self.load: Callable[[], Awaitable[Load]] = _no_load
        """What this node has to do, for the others."""
        self._strange: Final[dict[str, str]] = {}
        """By node: what it says that is not known here, as a sentence."""
        self._run: Final = int(time.time() * MICROSECONDS) << _RUN_BITS | secrets.randbits(_RUN_BITS)
        self._keep_s: Final = keep_s
        self._core: Final = core
        self._driver: Final = driver
        self._carrier: Final = carrier
        self._on_alarm: Final = on_alarm
        self._told_away = ""
        self._loop: Final = asyncio.get_running_loop()
        self._is_woken: Final = asyncio.Event()
        self._peers: Final[dict[str, Peer]] = {}
        self._pipes: Final = Pipes(node)
        self._fences: Final = Fences(self._peers, core, driver)
        self.drain: Final = Drain(
            *(node, self._peers, features, core, driver, self._fences, drain_s),
            adopting=lambda: self.locating.adopting,
            on_free=lambda client_id: self.locating.on_free(client_id),
            on_begin=self._on_drain,
            move_rest=lambda client_id, to: self.locating.move_rest(client_id, to),
        )
        self.locating: Final = Locating(node, self._peers, core, driver, self._answer, self._pipes, self.drain)
        self._subacks: Final = Subacks(self._peers, core, driver, lambda client_id: self.far.awaited(client_id))
        self.far: Final = Far(
            *(node, self._peers, features, core, driver, self._pipes, keep_s),
            on_news=self._is_woken.set,
            on_answer=self._is_woken.set,
            refuse=self._subacks.refuse,
        )
        self.telling: Final = Telling(
            *(node, self._peers, core, driver, self.far.places, self._subacks), wake=self._is_woken.set
        )
        self.calls: Final = Calls(self._peers)
        self.spending: Final = Spending(self._peers, driver.time)
        self._is_unknown: Final = asyncio.Event()
        """A node has started, and may not have heard of this one."""
        self._tasks: Final[list[asyncio.Task[None]]] = []
        self._rival = 0
        """The run of the latest other node with this name."""
        self._rival_at = -SILENT_S
        """When it was heard of."""
        self._is_over_full = False

    # ------------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Begin. Raises `ConfigError` if the broker has no room for the sessions of other nodes."""
        self._core.locate_sessions()
        self._core.sessions.elsewhere = self.drain.address_with_room
        self.telling.begin()
        for session in list(self._core.sessions.values()):
            if not session.client_id.startswith(CLIENT_ID_PREFIX):
                continue
            name = session.client_id.removeprefix(CLIENT_ID_PREFIX)
            if "/" in name and session.identity.is_trusted:  # of a client of a node
                continue
            peer = self._peer(name) if session.identity.is_trusted and is_name(name) else None
            if peer is None:  # of a client, from a time when this broker was no node; or there are too many
                self._core.end_session(session.client_id, self._loop.time())
                continue
            try:
                peer.connect(1, self._core.limits.max_packet_bytes).leave()
            except ConnectionRefusedError as error:
                raise ConfigError(f"nodes: {peer.name!r} has no session here: {error}") from None
        await self._carrier.open(self.node, self._on_bytes)
        for work in (self._hello, self._tick, self._send):
            self._tasks.append(self._loop.create_task(self._for_ever(work)))
        await self._meet()

    async def _for_ever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work that never ends: without it clients would wait for ever. So a fault in it is logged, and it goes on."""
        while True:
            try:
                await work()
            except Exception:
                _log.exception("a fault in what this node does for others; it goes on")
                await asyncio.sleep(TICK_S)

    async def _meet(self) -> None:
        """Wait for the nodes that run, a while: then clients that connect here are heard at all of them."""
        give_up_at = self._loop.time() + MEET_S
        await asyncio.sleep(ANSWER_S)
        while self._loop.time() < give_up_at and not all(each.has_met for each in self._peers.values()):
            await asyncio.sleep(FLUSH_S)

    async def stop(self) -> None:
        """Say goodbye. What waits for other nodes is kept."""
        self.locating.leave()
        await self.calls.stop()
        for peer in self._peers.values():
            peer.end("This broker stops.", "It was stopped.")
        await self._flush()
        await self._say(is_leaving=True)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._carrier.close()
        self._subacks.look()  # nobody is connected any more

    def serve_at(self, options: Sequence[ListenerOptions], listeners: Sequence[TakesIn]) -> None:
        """Where clients of other nodes come in: at the listener of the same name, or without one in the same place and
        of the same kind."""
        self.locating.passing.serve_at(
            {
                option.place(number): listener
                for number, (option, listener) in enumerate(zip(options, listeners, strict=True), 1)
            }
        )

    def _answer(self, question_id: int, is_here: bool) -> None:
        self._core.answer(question_id, is_here, self._loop.time())
        self._driver.wake()

    # ------------------------------------------------------------------ from other nodes

    def _on_bytes(self, data: bytes) -> None:
        blob = decode(data)
        if blob is None:
            blob = self._known_of(data)
        if blob is None or not is_name(blob.node):
            return
        if blob.node == self.node:
            self._on_own(blob)
            return
        if self._gives_way:
            return
        now = self._loop.time()
        if isinstance(blob, Hello):
            self._on_hello(blob, now)
            return
        peer = self._peer(blob.node)
        if peer is None or (isinstance(blob, Open) and blob.version != VERSION):
            return
        try:
            self._hear(peer, blob, now)
        except Exception:  # the carrier would hide it, and the two nodes would go on with half of what was said
            _log.exception("a fault while node %s was heard", peer.name)
            peer.end("What it said led to a fault, which is in the log.")
        self._subacks.look()

    def _hear(self, peer: Peer, blob: Blob, now: float) -> None:
        if isinstance(blob, Notes):
            peer.on_notes(blob, now)
        elif isinstance(blob, Data):
            try:
                peer.on_data(blob, now)
            except ValueError as error:  # no topic filter, or no QoS
                peer.end(f"It sent what is not valid: {error}.")
        elif isinstance(blob, Open):
            peer.on_open(blob, now)
        elif isinstance(blob, Close):
            peer.on_close(blob)

    def _known_of(self, data: bytes) -> Blob | None:
        """What is known here of what a newer node sends. The rest is named in the alarm, and left alone."""
        blob, kind = decode_newer(data)
        if blob is not None and is_name(blob.node) and blob.node != self.node:
            kind = kind or getattr(blob, "kind", "")
            self._note_strange(blob.node, f"says {kind!r}, which this version does not know: it is left alone.")
        return blob if isinstance(blob, Notes) else None

    def _note_strange(self, node: str, what: str) -> None:
        if node not in self._strange and len(self._strange) < MAX_NODES:
            self._strange[node] = f"Node {node} {what} Run one version on all nodes."
            _log.warning("%s", self._strange[node])

    def _on_hello(self, blob: Hello, now: float) -> None:
        if blob.version != VERSION:
            if not blob.is_leaving:
                self._note_strange(
                    blob.node,
                    f"speaks version {blob.version} of the protocol between nodes, and this one {VERSION}: they do not "
                    "talk to each other.",
                )
            return
        peer = self._peer(blob.node)
        if peer is not None and peer.on_hello(blob, now):
            self._strange.pop(blob.node, None)
            self._is_unknown.set()

    def _on_own(self, blob: Blob) -> None:
        """What this node sent to all, or another one of its name: the one that was started later takes no part. Of two
        machines of one node it is the earlier one, which stood still until another one served."""
        if not isinstance(blob, Hello) or blob.run == self._run:
            return
        self._rival_at = -SILENT_S if blob.is_leaving else self._loop.time()
        if blob.run != self._rival:
            self._rival = blob.run
            self._is_unknown.set()  # it may not have heard of this one
            if self._is_machine:
                _log.warning(
                    "another machine serves as the node %s, too: the one that was started earlier takes no part. If it "
                    "is none of this cluster, give it another name (nodes.node)",
                    self.node,
                )
            else:
                _log.error(
                    "there are two nodes with the name %s, and this one was started %s: %s is cut off from all others. "
                    "Give each its own name (nodes.node)",
                    *((self.node, "later", "it") if self._gives_way else (self.node, "before", "the other one")),
                )
        if self._gives_way:
            for peer in self._peers.values():
                peer.end("Another node has the same name as this one.", "There are two nodes with its name.")

    @property
    def _gives_way(self) -> bool:
        """Whether another node with this name runs, and this one takes no part."""
        if self._rival == 0 or self._loop.time() - self._rival_at >= SILENT_S:
            return False
        return self._rival > self._run if self._is_machine else self._rival < self._run

    def _peer(self, name: str) -> Peer | None:
        """None if there are too many."""
        peer = self._peers.get(name)
        if peer is None:
            self._forget_lost()
            if len(self._peers) >= MAX_NODES:
                if not self._is_over_full:
                    self._is_over_full = True
                    _log.error("there are more than %d other nodes: %s and others are left out", MAX_NODES, name)
                return None
            peer = self._peers[name] = Peer(
                *(name, self.node, self._run, self._core, self._driver, self._keep_s),
                wake=self._is_woken.set,
                beginning=self.telling.beginning,
                draw=lambda: secrets.randbits(62) + 1,
                on_notes=self._on_notes,
                on_places=self.far.places.on_told,
                on_away=self._on_away,
                on_connected=self._on_connected,
            )
        return peer

    def _on_notes(self, peer: Peer, notes: list[Note]) -> None:
        for note in notes:
            if isinstance(note, Bytes | Room | End):
                self._pipes.on_note(peer.name, note)
            elif isinstance(note, Reach | Reached | Leave | Still):
                self.far.on_note(peer, note)
            elif isinstance(note, Part | More):
                self.calls.on_note(peer, note)
            elif isinstance(note, Fence):
                self._fences.on_fence(peer, note)
            elif isinstance(note, Fenced):
                self._fences.on_fenced(peer, note)
            elif isinstance(note, Spent):
                self.spending.on_spent(note)
            else:
                self.locating.on_note(peer, note)

    def _on_connected(self, peer: Peer) -> None:
        self.far.on_connected(peer.name)
        self.drain.on_connected(peer)  # before it asks which session is the newer one
        self.locating.on_connected(peer)
        self._fences.on_connected(peer)

    def _on_drain(self) -> None:
        """Clients that this node has passed on to others find their own way. The others hear of it at once."""
        self._pipes.close_clients()
        self._is_unknown.set()

    def _on_away(self, name: str) -> None:
        self.drain.on_away(name)
        self.locating.on_away(name)
        self._pipes.on_away(name)
        self.calls.on_away(name)

    @property
    def peers(self) -> Iterable[Peer]:
        """The other nodes."""
        return self._peers.values()

    def knows(self, name: str) -> bool:
        """Whether another node has this name."""
        return name in self._peers

    def _forget_lost(self) -> None:
        """If there are too many, forget nodes that are away and for which nothing waits any more."""
        if len(self._peers) >= MAX_NODES:
            for name in [name for name, each in self._peers.items() if each.is_lost]:
                del self._peers[name]
                self._subacks.forget(name)

    # ------------------------------------------------------------------ to other nodes

    async def _hello(self) -> None:
        while True:
            self._is_unknown.clear()
            self._load = await self.load()
            await self._say(is_leaving=False)
            with suppress(TimeoutError):
                async with asyncio.timeout(HELLO_S):
                    await self._is_unknown.wait()

    async def _say(self, *, is_leaving: bool) -> None:
        if self._gives_way:
            return
        with suppress(CarrierLost):  # the carrier logs it, and the next one comes soon
            hello = Hello(
                *(VERSION, self.node, self._run, is_leaving, MINOR, build.VERSION),
                drain=self.drain.step,
                address=self._address,
                load=self._load,
            )
            await self._carrier.send_all(encode(hello))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._loop.time()
            for peer in self._peers.values():
                if not self._gives_way:
                    peer.tick(now)
            self._fences.tick()
            self.drain.tick()
            self.locating.tick()
            self.far.tick()
            self.telling.tick(now)
            self.spending.tick()
            self._subacks.look()
            self._look_who_is_away(now)

    async def _send(self) -> None:
        latest = 0.0
        while True:
            await self._is_woken.wait()
            await asyncio.sleep(max(0.0, latest + FLUSH_S - self._loop.time()))
            self._is_woken.clear()
            latest = self._loop.time()
            await self._flush()

    async def _flush(self) -> None:
        self.telling.tell()
        for peer in list(self._peers.values()):
            for blob in peer.blobs(self._loop.time()):
                with suppress(CarrierLost):  # the other node sees the gap
                    await self._carrier.send(peer.name, encode(blob))

    # ------------------------------------------------------------------ figures

    def _look_who_is_away(self, now: float) -> None:
        away = [
            f"node {name} is away: {peer.reason}"
            for name, peer in sorted(self._peers.items())
            if not (peer.is_connected or peer.is_lost) and now - peer.away_since >= AWAY_S
        ]
        detail = " ".join([*away, *(self._strange[name] for name in sorted(self._strange))])
        if detail != self._told_away:
            self._told_away = detail
            self._on_alarm(bool(detail), detail)

    def states(self) -> list[NodeState]:
        """Each other node that was heard of, or for which something waits, by name."""
        passed_on = self.locating.passing.passed_on
        return [self._peers[name].view(passed_on.get(name, 0)) for name in sorted(self._peers)]

    def figures(self) -> Mapping[str, Values]:
        """The values of the figures in the manifest."""
        states = self.states()
        labels = [{"node": each.name} for each in states]
        return {
            "nodes_info": [({"node": self.node}, 1)],
            "nodes_connected": [(label, each.state == "connected") for label, each in zip(labels, states, strict=True)],
            "nodes_waiting": [(label, each.waiting) for label, each in zip(labels, states, strict=True)],
            "nodes_filters": [(label, each.filters) for label, each in zip(labels, states, strict=True)],
            "nodes_sent_bytes": [(label, each.sent_bytes) for label, each in zip(labels, states, strict=True)],
            "nodes_received_bytes": [(label, each.received_bytes) for label, each in zip(labels, states, strict=True)],
            "nodes_connects": [(label, each.connects) for label, each in zip(labels, states, strict=True)],
            "nodes_passed_on": [(label, each.passed_on) for label, each in zip(labels, states, strict=True)],
            "nodes_draining": [({}, self.drain.is_on)],
            "nodes_moved": [({}, self.drain.moved)],
        }

    def sys_values(self) -> Iterable[tuple[str, str]]:
        """Names below `$SYS/broker/` with their texts: of each node, this one included."""
        yield from _sys_of(self.node, self.drain.step or "connected", self._load)
        for each in self.states():
            load = Load(each.clients, each.sessions, each.received_per_s, each.sent_per_s)
            yield from _sys_of(each.name, each.drain or each.state, load)


def _sys_of(node: str, state: str, load: Load) -> Iterable[tuple[str, str]]:
    yield f"nodes/{node}/state", state
    yield f"nodes/{node}/clients", str(load.clients)
    yield f"nodes/{node}/sessions", str(load.sessions)
    yield f"nodes/{node}/received_per_s", str(load.received_per_s)
    yield f"nodes/{node}/sent_per_s", str(load.sent_per_s)


async def _no_load() -> Load:
    return NO_LOAD
