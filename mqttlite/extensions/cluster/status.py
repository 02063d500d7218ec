"""What each machine of a cluster says of itself, in a key of its own."""

from typing import Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal[
    "starts", "follows", "cannot serve", "waits for a snapshot", "takes over", "serves", "stopped", "silent"
]
"""`cannot serve` follows, too. `silent` is said of a machine by others."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. Positions are sequences of the log."""

    node: str
    run: str
    """Names one run of it."""
    role: Role
    problem: str = ""
    """Why it cannot serve, in a sentence; empty if it can."""
    position: int
    """How far its database has the log."""
    durable: int
    """How far after a power cut."""
    addresses: tuple[str, ...] = ()
    """Where clients find it."""
    build: str
    """The version of mqttlite."""
    at: float
    """When it said so, in Unix time of its own clock."""


class SnapshotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot that the engine has."""

    file: str
    position: int
    at: float


def encode(status: NodeStatus | SnapshotStatus) -> bytes:
    return msgspec.json.encode(status)


def decode_node(value: bytes | None) -> NodeStatus | None:
    """None for a deleted one, and for one that this version cannot read."""
    try:
        return None if value is None else msgspec.json.decode(value, type=NodeStatus)
    except msgspec.MsgspecError:
        return None


def decode_snapshot(value: bytes | None) -> SnapshotStatus | None:
    """None for a deleted one, and for one that this version cannot read."""
    try:
        return None if value is None else msgspec.json.decode(value, type=SnapshotStatus)
    except msgspec.MsgspecError:
        return None
