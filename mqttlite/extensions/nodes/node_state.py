"""`NodeState`: how another node stands, as operators see it."""

from typing import Literal

import msgspec

State = Literal["connected", "away"]


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """How another node stands."""

    name: str
    state: State
    reason: str
    """Why it is away, as a sentence; empty while it is connected."""
    waiting: int
    """Messages of QoS 1 and 2 that it has not acknowledged."""
    filters: int
    """Topic filters that are subscribed there."""
    sent_bytes: int
    received_bytes: int
    """Bytes of MQTT packets since the start of this broker."""
    connects: int
    """How often the two have connected since then."""
    passed_on: int
    """Clients of this node whose sessions are there."""
    drain: str
    """`draining`, or `drained`: it can be stopped; empty: it takes sessions."""
    clients: int
    """Clients that are connected there."""
    sessions: int
    received_per_s: int
    """Messages that clients publish there."""
    sent_per_s: int
    """Messages that clients there get."""
    release: str
    """Its version of mqttlite; empty if it does not say so."""
