"""The MQTT features that a listener offers: the server's CONNACK properties (5.0 §3.2.2.3), and the checks that enforce
them.

Invariant: using a feature that CONNACK declares unavailable is refused with the reason code given here.
"""

from dataclasses import dataclass
from typing import Final

from mqttlite.topics.names import has_wildcard
from mqttlite.topics.namespaces import ORDINARY, SHARED, ParsedTopic
from mqttlite.wire.constants import VERSION_NAMES
from mqttlite.wire.errors import (
    ClientIdentifierNotValid,
    PayloadFormatInvalid,
    QosNotSupported,
    RetainNotSupported,
    ServerMoved,
    UnsupportedProtocolVersion,
    UseAnotherServer,
)
from mqttlite.wire.packets import Connect
from mqttlite.wire.properties import Properties

_TOPIC_FILTER_INVALID: Final = 0x8F
_SHARED_NOT_SUPPORTED: Final = 0x9E
_IDENTIFIERS_NOT_SUPPORTED: Final = 0xA1
_WILDCARDS_NOT_SUPPORTED: Final = 0xA2


@dataclass(frozen=True)
class Capabilities:
    """The defaults offer everything. Raises `ValueError` for an invalid value."""

    maximum_qos: int = 2
    """A PUBLISH above it closes its connection (0x9B) [MQTT-3.2.2-11]; a SUBSCRIBE does not [MQTT-3.2.2-10]."""
    retain_available: bool = True
    """Whether messages may be retained. If not, a PUBLISH with RETAIN closes its connection (0x9A)."""
    wildcards_available: bool = True
    """Whether `+` and `#` may be subscribed to (0xA2)."""
    shared_subscriptions_available: bool = True
    """Whether `$share/…` may be subscribed to (0x9E)."""
    subscription_identifiers_available: bool = True
    """Whether subscriptions may have identifiers (0xA1)."""
    check_payload_format: bool = False
    """Whether the broker checks that a payload declared as UTF-8 is UTF-8 (0x99) [MQTT-3.3.2-4]."""
    tell_delivery: bool = False
    """Whether acknowledgements to 5.0 publishers carry the delivery outcome in user properties."""
    tell_message: bool = False
    """Whether messages to 5.0 clients carry their identity in user properties: `core/told_properties`."""
    response_information: str = ""
    """The response topic prefix for clients that ask for one; `%c` stands for the client identifier (§4.10.1)."""
    filter_suffix: bool = False
    """Whether `?` ends a topic filter and begins a message filter, as in `orders/new?payload.total > 1000`. Meant for
    3.1.1 clients, which have no user properties. Off by default because `?` is also legal in topic names."""
    server_reference: str = ""
    """Another server. Every CONNECT is redirected to it (0x9C)."""
    server_moved: bool = False
    """Whether the redirection is permanent (0x9D)."""
    protocol_versions: tuple[str, ...] = tuple(VERSION_NAMES.values())
    """Clients of other versions are refused (0x84)."""
    allow_empty_client_id: bool = True
    """Whether the broker assigns identifiers to clients without one. If not, it refuses them (0x85)."""

    max_topic_levels: int = 0
    """Most levels in a topic, where lower than in `limits`; 0: as in `limits`."""
    max_topic_bytes: int = 0
    """Most bytes in a topic, likewise."""
    max_payload_bytes: int = 0
    """Most bytes in a payload, likewise."""

    def __post_init__(self) -> None:
        for name in ("max_topic_levels", "max_topic_bytes", "max_payload_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: 1 at least, or 0 for as many as limits allow")
        if self.maximum_qos not in (0, 1, 2):
            raise ValueError(f"maximum_qos is {self.maximum_qos}: it may be 0, 1 or 2")
        unknown = [version for version in self.protocol_versions if version not in VERSION_NAMES.values()]
        if unknown or not self.protocol_versions:
            known = ", ".join(VERSION_NAMES.values())
            raise ValueError(f"protocol_versions is {list(self.protocol_versions)}: one at least of {known}")


EVERYTHING: Final = Capabilities()
"""The whole standard and no extensions [3.1.1 MQTT-7.0.0-2]."""


def check_connect(capabilities: Capabilities, packet: Connect) -> None:
    """Raises a `PeerError` for a CONNECT that uses a feature the listener does not offer."""
    if capabilities.server_reference:
        sentence = f"use {capabilities.server_reference}"
        error = ServerMoved(sentence) if capabilities.server_moved else UseAnotherServer(sentence)
        error.server_reference = capabilities.server_reference
        raise error
    version = VERSION_NAMES[packet.version]
    if version not in capabilities.protocol_versions:
        offered = ", ".join(capabilities.protocol_versions)
        raise UnsupportedProtocolVersion(f"MQTT {version} is not available on this listener, which speaks {offered}")
    if not packet.client_id and not capabilities.allow_empty_client_id:
        raise ClientIdentifierNotValid("a client identifier may not be empty on this listener [MQTT-3.1.3-8]")
    will = packet.will
    if will is None:
        return
    check_publish(capabilities, will.qos, will.retain)  # [MQTT-3.2.2-12] [MQTT-3.2.2-13]
    if not payload_is_valid(capabilities, will.payload, will.properties):
        raise PayloadFormatInvalid("the will's payload says that it is UTF-8 and is not [MQTT-3.1.3-11]")


def check_publish(capabilities: Capabilities, qos: int, retain: bool) -> None:
    """Raises `QosNotSupported` [MQTT-3.2.2-11] or `RetainNotSupported` [MQTT-3.2.2-14]."""
    if qos > capabilities.maximum_qos:
        raise QosNotSupported(f"QoS {qos}: {capabilities.maximum_qos} is the most on this listener [MQTT-3.2.2-11]")
    if retain and not capabilities.retain_available:
        raise RetainNotSupported("retained messages are not available on this listener [MQTT-3.2.2-14]")


def payload_is_valid(capabilities: Capabilities, payload: bytes, properties: Properties) -> bool:
    """Whether a payload matches its format indicator. True if the listener does not check."""
    if not capabilities.check_payload_format or properties.payload_format_indicator != 1:
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def refuse_subscription(capabilities: Capabilities, parsed: ParsedTopic, identifier: int) -> int:
    """The reason code that refuses a subscription; 0 if the listener offers it."""
    if parsed.namespace != ORDINARY:
        if parsed.filter_refusal:
            return _TOPIC_FILTER_INVALID
        if parsed.namespace == SHARED and not capabilities.shared_subscriptions_available:
            return _SHARED_NOT_SUPPORTED
    if identifier and not capabilities.subscription_identifiers_available:
        return _IDENTIFIERS_NOT_SUPPORTED
    if not capabilities.wildcards_available and has_wildcard(parsed.rest):
        return _WILDCARDS_NOT_SUPPORTED  # [3.1.1 MQTT-3.8.3-2]
    return 0
