"""Functions that are asked about clients: when one connects, when it subscribes, and when it is gone."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mqttlite.extensions.publish_hook import Reject


@dataclass(frozen=True, slots=True)
class ConnectingClient:
    """A client whose CONNECT the broker would accept."""

    client_id: str
    """Empty if the broker gives it one."""
    username: str | None
    """The user; None if there is none. Checked if the listener asks for a login."""
    address: str
    """`address:port`."""
    listener: str
    """The name of the listener."""


@dataclass(frozen=True, slots=True)
class Subscribing:
    """A subscription that the rules allow."""

    client_id: str
    username: str | None
    topic_filter: str
    """With `$share/…/` and, if the client has one, its mount point."""
    qos: int
    """The highest QoS that the client asks for."""


@dataclass(frozen=True, slots=True)
class DisconnectedClient:
    """A client whose connection ended."""

    client_id: str
    username: str | None
    address: str
    listener: str
    reason: str
    """Why, as in the log and the dataset: for example `client_disconnected`, `keep_alive_timeout`."""


OnConnect = Callable[[ConnectingClient], Reject | Awaitable[Reject | None] | None]
OnSubscribe = Callable[[Subscribing], Reject | None]
OnDisconnect = Callable[[DisconnectedClient], None]


@dataclass(frozen=True, slots=True)
class ConnectHook:
    """One function that is asked before a client is accepted."""

    name: str
    function: OnConnect
    deadline_s: float
    accepts_on_error: bool


@dataclass(frozen=True, slots=True)
class SubscribeHook:
    """One function that is asked before a subscription is granted."""

    name: str
    function: OnSubscribe
    accepts_on_error: bool


@dataclass(frozen=True, slots=True)
class DisconnectHook:
    """One function that is called when the connection of an accepted client with a socket has ended."""

    name: str
    function: OnDisconnect
