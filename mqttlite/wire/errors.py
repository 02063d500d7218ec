"""The errors of a peer. Each knows its reason code on the wire; raised anywhere below, caught once at the top.

A `PeerError` is the peer's fault: it ends that connection and nothing else. Our own faults are assertions.
"""

from typing import ClassVar

from mqttlite.wire.reason_codes import ReasonCode


class PeerError(Exception):
    """The peer broke a rule; `str(error)` is one sentence fit for a reason string."""

    reason_code: ClassVar[int] = ReasonCode.UNSPECIFIED_ERROR


class MalformedPacket(PeerError):
    """Bytes that are no packet of the version in force (5.0 §4.13.1)."""

    reason_code: ClassVar[int] = ReasonCode.MALFORMED_PACKET


class ProtocolError(PeerError):
    """A well-formed packet that may not come now, or says what may not be said (5.0 §4.13.1)."""

    reason_code: ClassVar[int] = ReasonCode.PROTOCOL_ERROR


class UnsupportedProtocolVersion(PeerError):
    """A protocol level we do not speak [MQTT-3.1.2-2]."""

    reason_code: ClassVar[int] = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


class ClientIdentifierNotValid(PeerError):
    """A client identifier the server does not take [MQTT-3.1.3-8]."""

    reason_code: ClassVar[int] = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


class NotAuthorized(PeerError):
    """The client may not do this."""

    reason_code: ClassVar[int] = ReasonCode.NOT_AUTHORIZED


class BadUserNameOrPassword(PeerError):
    """The credentials were not accepted."""

    reason_code: ClassVar[int] = ReasonCode.BAD_USER_NAME_OR_PASSWORD


class ServerUnavailable(PeerError):
    """A service that must be asked about this client does not answer now."""

    reason_code: ClassVar[int] = ReasonCode.SERVER_UNAVAILABLE


class ServerBusy(PeerError):
    """Too much is waiting before this client's CONNECT; the client may come again."""

    reason_code: ClassVar[int] = ReasonCode.SERVER_BUSY


class TooManyFailedLogins(PeerError):
    """The client's address failed to log in too often. MQTT 3.1.1 has return code 5 for it, not authorized."""

    reason_code: ClassVar[int] = ReasonCode.CONNECTION_RATE_EXCEEDED


class BadAuthenticationMethod(PeerError):
    """An authentication method the server does not know [MQTT-4.12.0-1]."""

    reason_code: ClassVar[int] = ReasonCode.BAD_AUTHENTICATION_METHOD


class TopicFilterInvalid(PeerError):
    """A topic filter that breaks the rules for wildcards or is longer than we accept [MQTT-4.7.1-1]."""

    reason_code: ClassVar[int] = ReasonCode.TOPIC_FILTER_INVALID


class TopicNameInvalid(PeerError):
    """A topic name with wildcards, without characters or with too many levels [MQTT-3.3.2-2]."""

    reason_code: ClassVar[int] = ReasonCode.TOPIC_NAME_INVALID


class ReceiveMaximumExceeded(PeerError):
    """More unacknowledged messages than we agreed to hold [MQTT-3.3.4-7]."""

    reason_code: ClassVar[int] = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


class TopicAliasInvalid(PeerError):
    """A topic alias of zero, above the agreed maximum, or never introduced [MQTT-3.3.2-8]."""

    reason_code: ClassVar[int] = ReasonCode.TOPIC_ALIAS_INVALID


class PacketTooLarge(PeerError):
    """A packet above the maximum packet size that we announced."""

    reason_code: ClassVar[int] = ReasonCode.PACKET_TOO_LARGE


class QuotaExceeded(PeerError):
    """A limit of the server is reached."""

    reason_code: ClassVar[int] = ReasonCode.QUOTA_EXCEEDED


class ConnectionRateExceeded(PeerError):
    """The client, or its user, connects too often."""

    reason_code: ClassVar[int] = ReasonCode.CONNECTION_RATE_EXCEEDED


class Banned(PeerError):
    """An administrator keeps the client out for a while."""

    reason_code: ClassVar[int] = ReasonCode.BANNED


class QosNotSupported(PeerError):
    """A QoS above the Maximum QoS that we announced [MQTT-3.2.2-11]."""

    reason_code: ClassVar[int] = ReasonCode.QOS_NOT_SUPPORTED


class RetainNotSupported(PeerError):
    """A retained message where we said that there are none [MQTT-3.2.2-14]."""

    reason_code: ClassVar[int] = ReasonCode.RETAIN_NOT_SUPPORTED


class PayloadFormatInvalid(PeerError):
    """A payload that is not what its format indicator says [MQTT-3.3.2-4]."""

    reason_code: ClassVar[int] = ReasonCode.PAYLOAD_FORMAT_INVALID


class UseAnotherServer(PeerError):
    """Not here, for now; `server_reference` says where (§4.11)."""

    reason_code: ClassVar[int] = ReasonCode.USE_ANOTHER_SERVER
    server_reference = ""


class ServerMoved(UseAnotherServer):
    """Not here any more (§4.11)."""

    reason_code: ClassVar[int] = ReasonCode.SERVER_MOVED
