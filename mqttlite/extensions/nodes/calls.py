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
"""How many requests may be under way to one node. One more is refused."""

MAX_ANSWERS: Final = 16
"""How many requests of all other nodes are answered at a time. One more is refused."""

ANSWER_S: Final = 30.0
"""How long an answer takes at most, with its way to the other node."""

REFUSED: Final = b""
"""The answer to a request that is refused."""

Answering = Callable[[str, bytes], Awaitable[bytes]]
"""Answers a request of a node."""


class NoAnswer(Exception):
    """A node did not answer. The text says why, and goes on behind its name: `did not answer within 1 s`."""


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
            self.whole.set_exception(NoAnswer(f"sent more than {MAX_BYTES} bytes"))
        elif part.is_last:
            self.whole.set_result(b"".join(self._pieces))


class Calls:
    """`peers` are all other nodes by name."""

    def __init__(self, peers: Mapping[str, Called]) -> None:
        self._peers: Final = peers
        self.answer: Answering | None = None
        """Answers requests of other nodes. None: they are refused."""
        self._latest = 0
        self._under_way: Final[dict[str, int]] = {}
        """How many requests each node was sent, and has not answered."""
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
        under_way = self._under_way.get(name, 0)
        if under_way >= MAX_CALLS:
            raise NoAnswer(f"has not answered the {MAX_CALLS} requests before")
        self._under_way[name] = under_way + 1
        self._latest += 1
        number = self._latest
        key = name, number, True
        incoming = self._incoming[key] = _Incoming()
        sending = asyncio.get_running_loop().create_task(self._send(peer, number, request, is_answer=False))
        try:
            async with asyncio.timeout(within_s):
                answer = await incoming.whole
        except TimeoutError:
            raise NoAnswer(f"did not answer within {within_s:g} s") from None
        finally:
            sending.cancel()
            del self._incoming[key]
            self._under_way[name] -= 1
        if answer == REFUSED:
            raise NoAnswer(f"stops, or answers {MAX_ANSWERS} requests of other nodes already")
        return answer

    async def _send(self, peer: Called, number: int, data: bytes, *, is_answer: bool) -> None:
        """Send all pieces, the next one when the other node has taken the one before."""
        key = peer.name, number, is_answer
        for at in range(0, len(data) or 1, PIECE_BYTES):
            is_last = at + PIECE_BYTES >= len(data)
            peer.note(Part(number, is_answer, data[at : at + PIECE_BYTES], is_last))
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
                incoming.whole.set_exception(NoAnswer("went away before it answered"))
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
            incoming = self._begin(peer, part.number)
            if incoming is None:
                return
        incoming.add(part)
        if not part.is_last:
            peer.note(More(part.number, part.is_answer))

    def _begin(self, peer: Called, number: int) -> _Incoming | None:
        """A request begins to come. None if it is refused."""
        if self.answer is None or len(self._answers) >= MAX_ANSWERS:
            peer.note(Part(number, True, REFUSED, True))
            return None
        incoming = self._incoming[peer.name, number, False] = _Incoming()
        task = asyncio.get_running_loop().create_task(self._serve(peer, number, incoming, self.answer))
        self._answers[task] = peer.name
        task.add_done_callback(self._answers.pop)
        return incoming

    async def _serve(self, peer: Called, number: int, incoming: _Incoming, answer: Answering) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await answer(peer.name, await incoming.whole)
                await self._send(peer, number, found, is_answer=True)
        except (TimeoutError, NoAnswer):  # nobody waits any more, or it was too large
            pass
        finally:
            del self._incoming[peer.name, number, False]
