"""`HeldDocument`: a document that all nodes have, and what this node knows of it.

Invariant: `known` is a document that was in the bucket, and that the file here has or had.
"""

import asyncio
from typing import Final, NamedTuple

import msgspec

from mqttlite.extensions.nodes.bucket import Found
from mqttlite.files.file_version import NO_FILE, Version
from mqttlite.files.shared_document import SharedDocument

CHANGED: Final = (-1, -1, -1)
"""The version of a file that was written here: somebody may have edited it since, so it is looked at again."""


class SeenDocument(NamedTuple):
    """A document here, as one look found it."""

    version: Version
    content: bytes | None
    digest: str | None


class KnownDocument(msgspec.Struct, frozen=True):
    """The document of all nodes that a file here has: its epoch, number and digest."""

    epoch: str
    number: int
    digest: str
    path: str
    """Of the file. Of another file nothing is known."""
    next_digest: str = ""
    """Of a change that was offered to the other nodes, and is in the file if they have agreed."""

    def has(self, digest: str | None) -> bool:
        """Whether a file with this digest is as the other nodes had it at some time."""
        return digest in (self.digest, self.next_digest)

    def is_of(self, found: Found) -> bool:
        """Whether it is the document of the bucket, perhaps of another one with the same."""
        return (self.number, self.digest) == (found.number, found.digest)


class DocumentState(msgspec.Struct, kw_only=True):
    """A document that all nodes have, as this node sees it."""

    name: str
    revision: int
    """Its number. 0: no operator has changed it yet."""
    current: bool
    """Whether it is that of all nodes here, and may be changed."""
    reason: str
    """If not, why; empty also for some milliseconds behind each change."""
    refused: int
    """How many changes of it gave way to those of other nodes since the start."""
    kept: str = ""
    """The file with the latest edit here that gave way since the start."""
    refused_edits: int = 0
    """How many of the changes that gave way were edits of the file."""


class HeldDocument:
    """A document, and what this node knows of it."""

    def __init__(self, document: SharedDocument, known: KnownDocument | None) -> None:
        self.document: Final = document
        self.known: KnownDocument | None = known
        self.revision: int = 0
        """Of the key, when the bucket was last asked; 0: there was none."""
        self.is_looked_at: bool = False
        """Whether it was compared with the bucket since the start, so that changes may be made."""
        self.is_due: bool = True
        """Whether the bucket has changed, or may have, since it was last looked at."""
        self.woken: Final = asyncio.Event()
        self.check_at: float = 0.0
        """When the bucket is asked for its revision the next time."""
        self.seen: Version = NO_FILE
        """The version of the file when it was last looked at."""
        self.former: tuple[Version, str | None] = NO_FILE, None
        """The version and digest that were found when it was last looked at."""
        self.same_since: float = 0.0
        """Since when they are the same."""
        self.trouble: str = ""
        """Why the document of the bucket cannot be used."""
        self.complaint: str = ""
        """What the log said last."""
        self.refused: int = 0
        self.kept: str = ""
        """The file with the latest edit that gave way."""
        self.refused_edits: int = 0

    @property
    def name(self) -> str:
        return self.document.name

    def gives_way_silently(self, here: SeenDocument, found: Found) -> bool:
        """Whether the content here was that of all nodes earlier, or was made by this start."""
        if self.known is None:
            return self.document.gives_way
        return self.known.has(here.digest) and (self.known.number == 0 or self.known.epoch == found.epoch)

    @property
    def path(self) -> str:
        return str(self.document.path or "")

    @property
    def is_verified(self) -> bool:
        """Whether the file was seen with the content that is known."""
        return not self.is_due and self.seen != CHANGED

    @property
    def is_current(self) -> bool:
        """Whether the document here is that of all nodes, and may be changed."""
        return self.is_looked_at and not self.is_due and not self.trouble

    def wake(self) -> None:
        """The bucket has changed."""
        self.is_due = True
        self.woken.set()
