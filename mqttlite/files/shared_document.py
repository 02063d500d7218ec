"""A document that all nodes have, such as the API keys: the port by which its owner has a change agreed.

The owner asks `agree` with the content that the change makes, before it writes or uses it. A broker alone agrees to
everything; with several nodes `extensions.nodes` sets `agreeing`. Invariant: a change that was refused is made nowhere.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

Agreeing = Callable[[bytes], Awaitable[None]]


class NotAgreed(Exception):
    """A change that other nodes cannot have, and so is made nowhere. The text is a sentence for the caller."""


class ChangedElsewhere(NotAgreed):
    """Another node has changed the document at the same time. Try again on what it has now."""


class SharedDocument:
    """`lock` is held from the first look at the document until a change of it is written and used; `read`, `check`,
    `replace`, `reload` and `merge` are called with it.

    `reload` uses content that somebody else has written into the file, and does not write it; without it, the owner
    notices such a change itself. `read` returns the present content, which has equal bytes at all nodes, and None if
    there is none; in a thread. `check` raises ValueError with a sentence for content that cannot be used; in a thread.
    `replace` writes and uses the content of other nodes, and raises `OSError`.
    """

    def __init__(
        self,
        name: str,
        check: Callable[[bytes], object],
        replace: Callable[[bytes], Awaitable[None]],
        *,
        path: Path | None,
        lock: asyncio.Lock,
        read: Callable[[], bytes | None] | None = None,
        reload: Callable[[bytes], Awaitable[None]] | None = None,
        merge: Callable[[bytes, bytes], bytes] | None = None,
    ) -> None:
        """`path` is the file of the document, which `read` reads if nothing else is given. `merge` makes one of the
        content here, which was changed while no node could be asked, and of that in NATS (the same content if there is
        none); without it, such a change is refused."""
        self.name: Final = name
        self._check: Final = check
        self.replace: Final = replace
        self.reload: Final = reload
        self.path: Path | None = path
        """Another one after a reload of the configuration that names another file."""
        self.is_used: bool = True
        """False while the configuration names no file for it: until then, nothing of it is changed here."""
        self.lock: Final = lock
        self.read: Final = read or self._read_file
        self.merge: Final = merge
        self.gives_way: bool = False
        """Whether the content was made by this start, for there was none: that of another node takes its place."""
        self.agreeing: Agreeing | None = None
        """None for a broker alone."""

    def check(self, content: bytes) -> None:
        """Raises ValueError with a sentence for content that cannot be used; in a thread."""
        try:
            self._check(content)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    async def agree(self, content: bytes) -> None:
        """Give a change to the other nodes. Raises `NotAgreed`: then it may not be made here."""
        if self.agreeing is not None:
            await self.agreeing(content)

    def _read_file(self) -> bytes | None:
        try:
            return None if self.path is None else self.path.read_bytes()
        except FileNotFoundError:
            return None
