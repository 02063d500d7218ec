"""The keys and the log of a cluster in its engine."""

from typing import Final

from mqttlite.extensions.cluster.engine.port import Engine
from mqttlite.extensions.cluster.lease import HandOver, encode

LOG: Final = "log"
"""The name of the log."""

LEASE: Final = "lease"

HAND_OVER: Final = "hand-over"

NODES: Final = "node."
"""The keys of the machines begin with it."""

FILES: Final = "file."
"""The keys with the digests of files beside the database begin with it."""

SNAPSHOT: Final = "snapshot"
"""Says how far the snapshot has the log; and the name of its file."""


async def ask_to_hand_over(engine: Engine, turn: int, successor: str) -> None:
    """Ask the machine that serves in this turn to let another one serve; empty: any. Raises `EngineError`."""
    entry = await engine.get(HAND_OVER)
    await engine.put(HAND_OVER, encode(HandOver(turn, successor)), 0 if entry is None else entry.revision)
