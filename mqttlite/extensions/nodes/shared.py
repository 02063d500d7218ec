"""What operators change at run time, such as users and bans, as documents that all nodes have.

Each document is a key of a bucket in NATS, changed by compare-and-set, and a file or table of its owner here. A change
is stored in the bucket before its owner makes it; other nodes hear of it and put it in place of theirs. A file that
somebody edits on this machine is compared with the bucket twice a second. Design 161 has the reasons.

Invariants: a document of the bucket is replaced only by one that was made from it, or by a newer one, when NATS was
restored or its bucket lost; one that cannot be used replaces nothing and is not replaced; content that gives way is
kept beside, and named in the log.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from mqttlite.engine.port import EngineError, EngineUnavailable, EngineUnfit, RevisionConflict
from mqttlite.extensions.nodes.bucket import (
    KEYS,
    MAX_DOCUMENT_BYTES,
    BrokenDocument,
    Bucket,
    Found,
    NewerDocument,
    digest_of,
)
from mqttlite.extensions.nodes.documents_alarm import DocumentsAlarm
from mqttlite.extensions.nodes.held_document import (
    CHANGED,
    DocumentState,
    HeldDocument,
    KnownDocument,
    SeenDocument,
)
from mqttlite.extensions.nodes.known_file import KnownFile
from mqttlite.extensions.nodes.refused import keep
from mqttlite.files.file_version import NO_FILE, Version, version_of
from mqttlite.files.shared_document import ChangedElsewhere, NotAgreed, SharedDocument
from mqttlite.telemetry.figures import Values

if TYPE_CHECKING:
    from mqttlite.engine.port import Engine

LOOK_S: Final = 0.3
"""How often a document is looked at: with one way through NATS, an edited file holds at all nodes within a second."""

ALARM_LOOK_S: Final = 1.0
"""How often it is looked whether an alarm is due."""

CHECK_S: Final = 5.0
"""How often the bucket is asked for the revision of a document: this tells whether NATS is there, and finds what a
watch has missed."""

START_S: Final = 3.0
"""How long a start waits for the documents. After that the broker begins with what it had at the end of its last
run."""

OPEN_AGAIN_S: Final = 1.0
"""The pause between attempts to open the bucket."""

EMPTY_S: Final = 5.0
"""How long an edited file must be empty before the other nodes get it: a program that writes the file in place empties
it first. Any other edit is given to them when two looks have found the same."""

_log = logging.getLogger("mqttlite.nodes")


class _Edited(Exception):
    """The file was written by somebody else since it was read."""


class SharedDocuments:
    """`open_engine` connects to NATS, and is called until it succeeds. Without `data_dir` nothing is known of what
    there was before the start. `on_alarm` is told which documents are not those of all nodes, and when all are."""

    def __init__(
        self,
        node: str,
        documents: Sequence[SharedDocument],
        open_engine: "Callable[[], Awaitable[Engine]]",
        data_dir: str | None,
        on_alarm: Callable[[bool, str], None] = lambda _is_active, _detail: None,
    ) -> None:
        self._node: Final = node
        self._loop: Final = asyncio.get_running_loop()
        self._open_engine: Final = open_engine
        self._alarm: Final = DocumentsAlarm(on_alarm)
        self._known: Final = KnownFile(data_dir)
        self._held: Final = {each.name: HeldDocument(each, self._known.saved.get(each.name)) for each in documents}
        self._bucket: Bucket | None = None
        self._engine: Engine | None = None
        self._away: str = "NATS was not reached yet"
        self._tasks: Final[list[asyncio.Task[None]]] = []
        self._are_looked_at: Final = asyncio.Event()
        self._has_gone_back: Final = asyncio.Event()
        """Whether the revisions of the bucket are lower than before."""
        for held in self._held.values():
            held.document.agreeing = partial(self._agree, held)

    async def start(self) -> None:
        """Get what the other nodes have, before clients come."""
        for work in (self._run(), self._watch()):
            self._tasks.append(self._loop.create_task(work))
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await self._are_looked_at.wait()
        if not self._are_looked_at.is_set():
            missing = [each.name for each in self._held.values() if not each.is_looked_at]
            _log.warning(
                "%s: as at the end of the last run, and cannot be changed, until NATS answers: %s",
                *(", ".join(missing), self._away),
            )

    async def stop(self) -> None:
        """End the connection. Changes are refused from now on."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._bucket, self._away = None, "this broker stops"
        if self._engine is not None:
            await self._engine.close()

    def states(self) -> list[DocumentState]:
        """Each document, by name."""
        return [
            DocumentState(
                name=name,
                revision=0 if held.known is None else held.known.number,
                current=held.is_current,
                reason=held.trouble or held.complaint or ("" if held.is_looked_at else self._away),
                refused=held.refused,
                kept=held.kept,
                refused_edits=held.refused_edits,
            )
            for name, held in sorted(self._held.items())
            if held.document.is_used
        ]

    def figures(self) -> Mapping[str, Values]:
        """The values of the figures in the manifest."""
        states = self.states()
        return {
            "nodes_shared_revision": [({"document": each.name}, each.revision) for each in states],
            "nodes_shared_current": [({"document": each.name}, each.current) for each in states],
            "nodes_shared_refused": [({"document": each.name}, each.refused) for each in states],
        }

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(ALARM_LOOK_S)
            self._alarm.look(self.states(), self._loop.time())

    # ------------------------------------------------------------------ changes of this node

    async def _agree(self, held: HeldDocument, content: bytes) -> None:
        """Store a change, whose owner holds the lock, as the next revision. Raises `NotAgreed`."""
        if held.trouble:
            raise NotAgreed(held.trouble)
        if self._bucket is None or not held.is_looked_at:
            raise NotAgreed(
                f"the other nodes cannot have the change of {held.name}, so it is not made: {self._away}. Try again "
                "when NATS answers"
            )
        if len(content) > MAX_DOCUMENT_BYTES:
            raise NotAgreed(f"{held.name} would have {len(content)} bytes: nodes share {MAX_DOCUMENT_BYTES} at most")
        known = held.known or KnownDocument("", 0, "", held.path)
        if known.path != held.path:
            held.wake()
            raise NotAgreed(f"{held.name} is in another file since a moment ago, so it is not changed: try again")
        digest = await asyncio.to_thread(digest_of, held.name, content)
        try:
            found = await self._bucket.get(held.name)
            if found is not None and not known.is_of(found):
                raise RevisionConflict(KEYS + held.name, held.revision)
            await self._known.save(self._held.values(), held.name, msgspec.structs.replace(known, next_digest=digest))
            epoch, revision = (_new_epoch(), 0) if found is None else (found.epoch, found.revision)
            found = await self._bucket.put(held.name, content, epoch, known.number + 1, revision)
        except BrokenDocument as error:
            self._refuse_broken(held, error)
            raise NotAgreed(held.trouble) from None
        except RevisionConflict:
            await self._forget_offer(held)
            held.wake()
            held.refused += 1
            raise ChangedElsewhere(
                f"another node has changed {held.name} at the same time, so this change is not made; it is here in a "
                "moment: look, and try again"
            ) from None
        except EngineError as error:
            await self._forget_offer(held)
            held.wake()
            raise NotAgreed(
                f"the other nodes cannot have the change of {held.name}, so it is not made here: {error}. If NATS has "
                "it all the same, it is made at all nodes; look before you try again"
            ) from None
        self._note(held, found)
        held.wake()  # to see whether its owner has written it

    async def _forget_offer(self, held: HeldDocument) -> None:
        """A change was made nowhere, as far as is known: if it is in the file later, somebody has edited that."""
        if held.known is not None:
            await self._known.save(self._held.values(), held.name, held.known)
        elif self._known.saved.get(held.name) is not None:
            await self._known.save(self._held.values(), held.name, KnownDocument("", 0, "", held.path))

    # ------------------------------------------------------------------ the bucket and the files

    async def _run(self) -> None:
        engine = await self._opened()
        self._bucket, self._away = Bucket(engine, self._node), "it was not compared with theirs yet"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(engine))
            for held in self._held.values():
                tasks.create_task(self._keep(held, self._bucket))

    async def _opened(self) -> "Engine":
        while True:
            try:
                self._engine = await self._open_engine()
                return self._engine
            except (EngineUnavailable, EngineUnfit) as error:
                if str(error) != self._away:
                    self._away = str(error)
                    _log.warning("what all nodes have (%s) is not reached: %s", ", ".join(self._held), error)
            await asyncio.sleep(OPEN_AGAIN_S)

    async def _follow(self, engine: "Engine") -> None:
        """Wake the documents that other nodes have changed. A bucket that is another one, or an older state of it, is
        read from its beginning."""
        while True:
            self._has_gone_back.clear()
            reading = self._loop.create_task(self._wake_changed(engine))
            going_back = self._loop.create_task(self._has_gone_back.wait())
            try:
                await asyncio.wait({reading, going_back}, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    return reading.result()
            finally:
                reading.cancel()
                going_back.cancel()
                await asyncio.wait({reading, going_back})

    async def _wake_changed(self, engine: "Engine") -> None:
        async for entry in engine.watch(KEYS):
            held = self._held.get(entry.key.removeprefix(KEYS))
            if held is not None and entry.revision != held.revision:
                held.wake()

    async def _keep(self, held: HeldDocument, bucket: Bucket) -> None:
        """Compare a document with its bucket and its file, whenever one of them may have changed."""
        while True:
            held.woken.clear()
            if not held.is_due and self._loop.time() >= held.check_at:
                await self._check(held, bucket)
            if held.is_due or await asyncio.to_thread(version_of, held.document.path) != held.seen:
                async with held.document.lock:
                    await self._look(held, bucket)
                if held.is_verified:
                    await self._known.save(self._held.values())
                if held.is_looked_at and all(each.is_looked_at for each in self._held.values()):
                    self._are_looked_at.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await held.woken.wait()

    async def _check(self, held: HeldDocument, bucket: Bucket) -> None:
        """See whether the bucket has another document than is known here, or does not answer."""
        held.check_at = self._loop.time() + CHECK_S
        try:
            found = await bucket.get(held.name)
        except (EngineError, BrokenDocument):
            held.is_due = True
            return
        if found is None:
            held.is_due = held.known is not None
        elif held.known is None or not held.known.is_of(found):
            held.is_due = True

    async def _look(self, held: HeldDocument, bucket: Bucket) -> None:
        document = held.document
        seen = version_of(document.path)
        if not document.is_used:  # what is known holds if the same file is used again
            held.is_looked_at, held.is_due, held.seen = True, False, NO_FILE
            return
        if held.known is not None and held.known.path != held.path:
            held.known = None
        try:
            held.check_at = self._loop.time() + CHECK_S  # to look is to ask the bucket, too
            here = await asyncio.to_thread(_read, document, seen)
            if held.former != (seen, here.digest):
                held.same_since = self._loop.time()
            is_settled = self._is_settled(held, here)
            held.former = seen, here.digest
            held.is_due = False
            if not await self._compare(held, here, bucket, is_settled=is_settled):
                held.seen = CHANGED
                return
            held.is_looked_at = True
            is_same = held.known is None or held.known.digest == here.digest
            held.seen = seen if is_same or held.trouble or document.path is None else CHANGED
        except (RevisionConflict, _Edited):  # somebody else was first: look at what is there now
            held.is_due = True
        except EngineError as error:
            held.is_due = True
            self._complain(held, logging.WARNING, f"{held.name} is not compared with that of other nodes: {error}")
        except OSError as error:
            held.is_due = True
            self._complain(
                *(held, logging.ERROR),
                f"{held.name} cannot be made what other nodes have: {error.filename}: {error.strerror}",
            )
        except BrokenDocument as error:
            held.is_looked_at, held.seen = True, seen
            self._refuse_broken(held, error)
        except NotAgreed as error:
            held.is_looked_at, held.seen, held.trouble = True, seen, str(error)
            self._complain(held, logging.ERROR, held.trouble)
        except Exception:  # a defect in one document must not stop the others
            held.is_looked_at, held.seen, held.trouble = True, seen, f"{held.name} failed here, as the log says"
            _log.exception("%s cannot be compared with that of other nodes", held.name)

    def _is_settled(self, held: HeldDocument, here: SeenDocument) -> bool:
        """Whether nobody seems to be writing the file. At the start nobody is waited for."""
        if not held.is_looked_at or held.document.merge is not None:
            return True
        return held.former == (here.version, here.digest) and (
            here.content != b"" or self._loop.time() - held.same_since >= EMPTY_S
        )

    async def _compare(self, held: HeldDocument, here: SeenDocument, bucket: Bucket, *, is_settled: bool) -> bool:
        """Make the document here and that of the bucket the same. False if it must wait until the file is settled.
        Raises `EngineError`, `OSError`, `NotAgreed` and `_Edited`."""
        known, content, merge = held.known, here.content, held.document.merge
        found = await bucket.get(held.name)
        self._note_revision(held, 0 if found is None else found.revision)
        if found is None and content is None:
            held.trouble = held.complaint = ""
        elif content is not None and (found is None or (known is not None and found.number < known.number)):
            if not is_settled:
                held.is_due = True
                return False
            await self._give(held, bucket, content if merge is None else merge(content, content), here, found)
        elif found is None:
            assert content is None
        elif here.digest == found.digest:
            self._know(held, found)
        elif held.gives_way_silently(here, found):
            await self._replace(held, bucket, found, here)
        elif content is not None and merge is not None:
            merged = merge(content, await bucket.content(found))
            await self._put(held, bucket, merged, found.epoch, found.number + 1, found.revision)
            await held.document.replace(merged)
        elif not is_settled:
            held.is_due = known is None or not known.is_of(found)
            return False
        elif content is None:
            await self._replace(held, bucket, found, here)
        elif known is not None and known.is_of(found):
            await self._put(held, bucket, content, found.epoch, found.number + 1, found.revision)
            if held.document.reload is not None:
                await held.document.reload(content)
        else:
            await self._refuse(held, bucket, here, found)
        return True

    async def _give(
        self, held: HeldDocument, bucket: Bucket, content: bytes, here: SeenDocument, found: Found | None
    ) -> None:
        """NATS has nothing, or an older document than was here: it was restored, or its bucket lost. Put there what is
        here. A bucket that is begun again gets the same number, so that a node that knows more does the same after
        this one."""
        known, path = held.known, held.document.path
        if known is None:
            await self._put(held, bucket, content, _new_epoch(), 0 if held.document.gives_way else 1, 0)
        elif found is None:
            number = known.number + (known.digest != here.digest)
            await self._put(held, bucket, content, _new_epoch(), number, 0)
        else:
            kept = ""
            if path is not None and found.number:
                with suppress(BrokenDocument):
                    name = await asyncio.to_thread(keep, path, await bucket.content(found))
                    kept = f" What was there is in {name}."
            await self._put(held, bucket, content, known.epoch, known.number + 1, found.revision)
            _log.error(
                "%s: NATS had revision %d, which node %s has made, and there was a revision %d: what is here is given "
                "to all nodes again.%s",
                *(held.name, found.number, found.node, known.number, kept),
            )
        if held.document.merge is not None and content != here.content:
            await held.document.replace(content)

    async def _put(
        self, held: HeldDocument, bucket: Bucket, content: bytes, epoch: str, number: int, revision: int
    ) -> None:
        """Give the content here to the other nodes."""
        try:
            await asyncio.to_thread(held.document.check, content)
        except ValueError as error:
            raise NotAgreed(f"{held.name} is not given to the other nodes: {error}") from None
        if len(content) > MAX_DOCUMENT_BYTES:
            raise NotAgreed(
                f"{held.name} is not given to the other nodes: it has {len(content)} bytes, and they share "
                f"{MAX_DOCUMENT_BYTES} at most"
            )
        self._know(held, await bucket.put(held.name, content, epoch, number, revision))
        _log.info("%s: the other nodes have what is here, as revision %d", held.name, number)

    async def _replace(self, held: HeldDocument, bucket: Bucket, found: Found, here: SeenDocument) -> bool:
        """Put the content of the bucket in place of that here. False if it cannot be used. Raises `_Edited`."""
        content = await bucket.content(found)
        try:
            await asyncio.to_thread(held.document.check, content)
        except ValueError as error:
            self._refuse_broken(held, error)
            return False
        if version_of(held.document.path) != here.version:
            raise _Edited
        await held.document.replace(content)
        self._know(held, found)
        _log.info("%s was changed at node %s, and is the same here now", held.name, found.node)
        return True

    async def _refuse(self, held: HeldDocument, bucket: Bucket, here: SeenDocument, found: Found) -> None:
        """Content was changed here, not from the newest revision: what all nodes have takes its place."""
        path = held.document.path
        name = "" if path is None else await asyncio.to_thread(keep, path, here.content or b"")
        if await self._replace(held, bucket, found, here):
            held.refused += 1
            held.refused_edits += 1
            held.kept = name
            kept = f" What was here is in {name}: make its changes again." if name else ""
            _log.error(
                "%s was changed here, but not from revision %d, which node %s has made and all nodes have: the change "
                "is refused.%s",
                *(held.name, found.number, found.node, kept),
            )

    def _refuse_broken(self, held: HeldDocument, why: Exception) -> None:
        if isinstance(why, NewerDocument):
            held.trouble = (
                f"{held.name} in NATS is of a newer version, so it stays as it is here, and cannot be changed here: "
                f"{why}. Upgrade this node"
            )
        else:
            held.trouble = (
                f"{held.name} in NATS cannot be used, so it stays as it is here, and cannot be changed: {why}. "
                f"Remove it there ('nats kv del' with the key {KEYS}{held.name}): then the first node gives the others "
                "what it has"
            )
        self._complain(held, logging.ERROR, held.trouble)

    def _know(self, held: HeldDocument, found: Found) -> None:
        self._note(held, found)
        held.trouble = held.complaint = ""

    def _note(self, held: HeldDocument, found: Found) -> None:
        held.known = KnownDocument(found.epoch, found.number, found.digest, held.path)
        self._note_revision(held, found.revision)
        if found.number:
            held.document.gives_way = False

    def _note_revision(self, held: HeldDocument, revision: int) -> None:
        if revision < held.revision:
            self._has_gone_back.set()
        held.revision = revision

    def _complain(self, held: HeldDocument, level: int, sentence: str) -> None:
        if sentence != held.complaint:
            held.complaint = sentence
            _log.log(level, "%s", sentence)


def _read(document: SharedDocument, version: Version) -> SeenDocument:
    """The document here, whose file had this version before."""
    content = document.read()
    return SeenDocument(version, content, None if content is None else digest_of(document.name, content))


def _new_epoch() -> str:
    return secrets.token_hex(8)
