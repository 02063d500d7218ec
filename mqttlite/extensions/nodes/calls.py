"""Requests of operators to another node's HTTP application, over the connection of the two nodes.

A request and its answer are notes in pieces, of which each is sent when the one before was taken: so a large answer
does not fill the connection. Invariant: a request is answered once at most, and never waits longer than it may.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from mqttlite.extensions.nodes.blobs import More, Note, Part

PIECE_BYTES: Final = 131_072
"""The most bytes in one piece."""

MAX_BYTES: Final = 4_456_448
"""Of a request or an answer: the largest body, and what stands before it."""

MAX_CALLS: Final = 8
"""How many requests may be under way to one node. Others wait for a place, as long as they may wait for the answer."""

MAX_WAITING: Final = 256
"""How many requests may wait for a place. One more is refused."""

MAX_ANSWERS: Final = 12
"""How many requests of one other node are answered at a time. One more is refused. It is more than `MAX_CALLS`,
because that node may give one up, and send the next, a little before this one ends it."""

MAX_ALL_ANSWERS: Final = 48
"""How many requests of all other nodes are answered at a time, so that their bodies and answers have room in memory.
One more is refused."""

ANSWER_S: Final = 30.0
"""How long an answer takes at most, with its way to the other node."""

REFUSED: Final = b""
"""The answer to a request that is refused."""

Answering = Callable[[str, bytes], Awaitable[bytes]]
"""Answers a request of a node."""


class NoAnswer(Exception):
    """A node did not answer. The text says why, and goes on behind its name: `did not answer within 1 s`."""

    def __init__(self, why: str, *, was_sent: bool = False) -> None:
        super().__init__(why)
        self.was_sent: Final = was_sent
        """Whether the node may have carried the request out."""


class Called(Protocol):
    """The part of a `Peer` that is used here."""

    @property
    def name(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    def note(self, note: Note) -> None: ...


_Key = tuple[str, int, bool]
"""A node, the number of a request, and whether it is about the answer."""


class _Incoming:
    """What has come of a request or an answer."""

    def __init__(self) -> None:
        self.whole: Final[asyncio.Future[bytes]] = asyncio.get_running_loop().create_future()
        self._pieces: Final[list[bytes]] = []
        self._size = 0

    def add(self, part: Part) -> None:
        """The next piece."""
        self._pieces.append(part.data)
        self._size += len(part.data)
        if self.whole.done():
            return
        if self._size > MAX_BYTES:
            self._pieces.clear()
            self.whole.set_exception(NoAnswer(f"sent more than {MAX_BYTES} bytes", was_sent=True))
        elif part.is_last:
            self.whole.set_result(b"".join(self._pieces))


class _Places:
    """Of the requests that may be under way to one node."""

    def __init__(self) -> None:
        self.free: Final = asyncio.Semaphore(MAX_CALLS)
        self.waiting: int = 0
        """Requests that wait for one."""


class Calls:
    """`peers` are all other nodes by name."""

    def __init__(self, peers: Mapping[str, Called]) -> None:
        self._peers: Final = peers
        self.answer: Answering | None = None
        """Answers requests of other nodes. None: they are refused."""
        self._latest = 0
        self._places: Final[dict[str, _Places]] = {}
        """By node."""
        self._incoming: Final[dict[_Key, _Incoming]] = {}
        self._taken: Final[dict[_Key, asyncio.Future[None]]] = {}
        """Pieces that were sent, and not taken yet."""
        self._answers: Final[dict[asyncio.Task[None], str]] = {}
        """What is being answered, and to which node."""

    # ------------------------------------------------------------------ to other nodes

    async def ask(self, name: str, request: bytes, within_s: float) -> bytes:
        """The answer of a node. Raises `NoAnswer`."""
        peer = self._peers.get(name)
        if peer is None or not peer.is_connected:
            raise NoAnswer("is away")
        if len(request) > MAX_BYTES:
            raise NoAnswer(f"takes no request of more than {MAX_BYTES} bytes")
        places = self._places.setdefault(name, _Places())
        if places.waiting >= MAX_WAITING:
            raise NoAnswer(f"has not answered the {MAX_CALLS + MAX_WAITING} requests before")
        before = asyncio.get_running_loop().time()
        places.waiting += 1
        try:
            async with asyncio.timeout(within_s):
                await places.free.acquire()
        except TimeoutError:
            raise NoAnswer(f"did not answer {MAX_CALLS} other requests within {within_s:g} s") from None
        finally:
            places.waiting -= 1
        try:
            return await self._call(peer, request, within_s, asyncio.get_running_loop().time() - before)
        finally:
            places.free.release()

    async def _call(self, peer: Called, request: bytes, within_s: float, waited_s: float) -> bytes:
        """The answer to a request that has a place, for which it has waited."""
        if not peer.is_connected:
            raise NoAnswer("is away")
        left_s = max(0.001, within_s - waited_s)
        self._latest += 1
        number = self._latest
        key = peer.name, number, True
        incoming = self._incoming[key] = _Incoming()
        sending = asyncio.get_running_loop().create_task(
            self._send(peer, number, request, is_answer=False, within_ms=round(left_s * 1_000))
        )
        try:
            async with asyncio.timeout(left_s):
                answer = await incoming.whole
        except TimeoutError:
            raise NoAnswer(f"did not answer within {within_s:g} s", was_sent=True) from None
        finally:
            sending.cancel()
            del self._incoming[key]
        if answer == REFUSED:
            raise NoAnswer(
                f"stops, or answers {MAX_ANSWERS} requests of this node already, or {MAX_ALL_ANSWERS} of all"
            )
        return answer

    async def _send(self, peer: Called, number: int, data: bytes, *, is_answer: bool, within_ms: int = 0) -> None:
        """Send all pieces, the next one when the other node has taken the one before."""
        key = peer.name, number, is_answer
        for at in range(0, len(data) or 1, PIECE_BYTES):
            is_last = at + PIECE_BYTES >= len(data)
            peer.note(Part(number, is_answer, data[at : at + PIECE_BYTES], is_last, 0 if at else within_ms))
            if not is_last:
                taken = self._taken[key] = asyncio.get_running_loop().create_future()
                try:
                    await taken
                finally:
                    del self._taken[key]

    # ------------------------------------------------------------------ from other nodes

    def on_note(self, peer: Called, note: Part | More) -> None:
        """A part of a request of another node, or of its answer."""
        if isinstance(note, Part):
            self._on_part(peer, note)
            return
        taken = self._taken.get((peer.name, note.number, note.is_answer))
        if taken is not None and not taken.done():
            taken.set_result(None)

    def on_away(self, name: str) -> None:
        """A node is not connected any more: it answers nothing, and gets no answer."""
        for key, incoming in self._incoming.items():
            if key[0] == name and not incoming.whole.done():
                incoming.whole.set_exception(NoAnswer("went away before it answered", was_sent=True))
        for task, to in self._answers.items():
            if to == name:
                task.cancel()

    async def stop(self) -> None:
        """End what is being answered."""
        self.answer = None
        for task in list(self._answers):
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    def _on_part(self, peer: Called, part: Part) -> None:
        key = peer.name, part.number, part.is_answer
        incoming = self._incoming.get(key)
        if incoming is None:
            if part.is_answer:  # nobody waits for it any more
                return
            incoming = self._begin(peer, part)
            if incoming is None:
                return
        incoming.add(part)
        if not part.is_last:
            peer.note(More(part.number, part.is_answer))

    def _begin(self, peer: Called, first: Part) -> _Incoming | None:
        """A request begins to come. None if it is refused."""
        number = first.number
        of_node = [*self._answers.values()].count(peer.name)
        if self.answer is None or of_node >= MAX_ANSWERS or len(self._answers) >= MAX_ALL_ANSWERS:
            peer.note(Part(number, True, REFUSED, True))
            return None
        incoming = self._incoming[peer.name, number, False] = _Incoming()
        within_s = min(ANSWER_S, first.within_ms / 1_000 or ANSWER_S)
        task = asyncio.get_running_loop().create_task(self._serve(peer, number, incoming, self.answer, within_s))
        self._answers[task] = peer.name
        task.add_done_callback(self._answers.pop)
        return incoming

    async def _serve(self, peer: Called, number: int, incoming: _Incoming, answer: Answering, within_s: float) -> None:
        """Answer a request, for as long as the other node waits: what it gives up has no place here."""
        try:
            async with asyncio.timeout(within_s):
                found = await answer(peer.name, await incoming.whole)
                await self._send(peer, number, found, is_answer=True)
        except (TimeoutError, NoAnswer):  # nobody waits any more, or it was too large
            pass
        finally:
            del self._incoming[peer.name, number, False]
