"""Closed lists of reasons: why a connection ended, why a message was dropped, why a link is not read.

The first two are the same in telemetry, metrics and logs.
"""

from enum import StrEnum
from typing import Final

from mqttlite.wire.errors import (
    BadAuthenticationMethod,
    BadUserNameOrPassword,
    Banned,
    ConnectionRateExceeded,
    MalformedPacket,
    NotAuthorized,
    PacketTooLarge,
    PeerError,
    QuotaExceeded,
    ServerBusy,
    ServerUnavailable,
    TooManyFailedLogins,
    UseAnotherServer,
)


class CloseReason(StrEnum):
    """Why a connection ended."""

    CLIENT_DISCONNECTED = "client_disconnected"
    CLIENT_DISCONNECTED_WITH_WILL = "client_disconnected_with_will"
    CONNECTION_LOST = "connection_lost"
    KEEP_ALIVE_TIMEOUT = "keep_alive_timeout"
    CONNECT_TIMEOUT = "connect_timeout"
    TAKEN_OVER = "taken_over"
    MALFORMED_PACKET = "malformed_packet"
    PROTOCOL_ERROR = "protocol_error"
    NOT_AUTHORIZED = "not_authorized"
    BUFFER_FULL = "buffer_full"
    QUOTA_EXCEEDED = "quota_exceeded"
    PACKET_TOO_LARGE = "packet_too_large"
    SERVER_SHUTDOWN = "server_shutdown"
    ADMINISTRATIVE = "administrative"
    PASSED_ON = "passed_on"
    """To another broker, which has the client's session. Nothing else tells of this connection."""


def close_reason_of(error: PeerError) -> CloseReason:
    """The close reason for a connection that ends with this error."""
    if isinstance(error, MalformedPacket):
        return CloseReason.MALFORMED_PACKET
    if isinstance(error, PacketTooLarge):
        return CloseReason.PACKET_TOO_LARGE
    if isinstance(error, Banned | UseAnotherServer):
        return CloseReason.ADMINISTRATIVE
    if isinstance(
        error, NotAuthorized | BadUserNameOrPassword | BadAuthenticationMethod | ServerUnavailable | TooManyFailedLogins
    ):
        return CloseReason.NOT_AUTHORIZED
    if isinstance(error, QuotaExceeded | ServerBusy | ConnectionRateExceeded):
        return CloseReason.QUOTA_EXCEEDED
    return CloseReason.PROTOCOL_ERROR


class HoldReason:
    """Why a link is not read, as bits of a mask. It is read while the mask is 0."""

    COMMIT: Final = 1
    """A commit takes too long, and the client waits for it or adds to the next one. The link is not written either."""
    DEFERRED: Final = 2
    """The unhandled bytes cost more work than one loop iteration allows."""
    UNWRITTEN: Final = 4
    """The client published more than one iteration of the loop can write to the receivers."""
    LOCAL: Final = 8
    """A local link has no socket to read, and keep-alive does not apply to it."""
    RATE: Final = 16
    """The client, or others that share a quota with it, sent more than the quota allows."""
    OVERLOAD: Final = 32
    """The broker is overloaded, and the client is one of the heaviest senders."""
    TURN: Final = 64
    """The client sends much, and other clients have their turn."""

    STOPS_READING: Final = DEFERRED | LOCAL | TURN
    """The reasons that stop only reading: bytes already read are handled."""


# Why a message was dropped. Plain strings, because they are counted on the message path.
NO_SUBSCRIBERS: Final = "no_subscribers"
FILTER_MISMATCH: Final = "filter_mismatch"
EXPIRED: Final = "expired"
QUEUE_FULL: Final = "queue_full"
BUFFER_FULL: Final = "buffer_full"
PACKET_TOO_LARGE: Final = "packet_too_large"
QOS0_OFFLINE: Final = "qos0_offline"
NOT_AUTHORIZED: Final = "not_authorized"
PAYLOAD_INVALID: Final = "schema_invalid"
HOOK_REJECTED: Final = "hook_rejected"
SESSION_EXPIRED: Final = "session_expired"
NACKED: Final = "nacked"
PURGED: Final = "purged"
STORE_DAMAGED: Final = "store_damaged"
RATE_LIMITED: Final = "rate_limited"
OVERLOAD_LOW_PRIORITY: Final = "overload_low_priority"
OVERLOAD_QOS0: Final = "overload_qos0"


CREDENTIALS_EXPIRED: Final = "the client's credentials have expired"
"""The sentence for a client, with or without a connection."""


def count(drops: dict[str, int], reason: str, messages: int) -> None:
    """Add to a table of drops."""
    drops[reason] = drops.get(reason, 0) + messages
