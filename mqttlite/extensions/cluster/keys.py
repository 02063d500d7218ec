"""The keys and the log of a cluster in its engine."""

import secrets
from typing import Final

from mqttlite.engine.port import Engine, RevisionConflict
from mqttlite.extensions.cluster.lease import HandOver, decode_hand_over, encode

LOG: Final = "log"
"""The name of the log."""

LOG_ID: Final = "log-id"
"""A random name for the log, made with it: a database is of this log or of another."""

LEASE: Final = "lease"

HAND_OVER: Final = "hand-over"

NODES: Final = "node."
"""The keys of the machines begin with it."""

FILES: Final = "file."
"""The keys with the digests of files beside the database begin with it."""

SNAPSHOT: Final = "snapshot"
"""Says which file is the snapshot, and how far it has the log."""


async def log_id(engine: Engine) -> str:
    """The name of the log, which the first that asks gives it. Raises `EngineError`."""
    entry = await engine.get(LOG_ID)
    if entry is None:
        made = secrets.token_hex(8)
        try:
            await engine.put(LOG_ID, made.encode(), 0)
        except RevisionConflict:
            return await log_id(engine)
        return made
    return (entry.value or b"").decode()


async def ask_to_hand_over(engine: Engine, turn: int, successor: str) -> int:
    """Ask the machine that serves in this turn to let another one serve; empty: any. Returns the revision of the
    request. Raises `EngineError`."""
    entry = await engine.get(HAND_OVER)
    return await engine.put(HAND_OVER, encode(HandOver(turn, successor)), 0 if entry is None else entry.revision)


async def refusal_of(engine: Engine, request: int) -> str:
    """Why the request with this revision was refused; empty if it was not, or not yet. Raises `EngineError`."""
    entry = await engine.get(HAND_OVER)
    if entry is None or entry.value is None or entry.revision == request:
        return ""
    answer = decode_hand_over(entry.value)
    return "" if answer is None else answer.refusal
