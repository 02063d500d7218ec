"""Checks a CONNECT and builds its CONNACK (5.0 §3.1, §3.2). `Connecting` uses both and holds all state."""

from typing import Final

from mqttlite.core.authorizer import Authorizer, allows_will
from mqttlite.core.connect.capabilities import check_connect
from mqttlite.core.connect.connection import Connection, Peer
from mqttlite.core.limits import MAX_CLIENT_ID_CHARACTERS, Limits
from mqttlite.core.retained.publish_order import PUBLISHED
from mqttlite.topics.names import check_name, is_own
from mqttlite.topics.namespaces import Namespaces
from mqttlite.wire.constants import NEVER_EXPIRES, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import (
    BadAuthenticationMethod,
    ClientIdentifierNotValid,
    NotAuthorized,
    PeerError,
    ProtocolError,
    TooManyFailedLogins,
    UnsupportedProtocolVersion,
    UseAnotherServer,
)
from mqttlite.wire.packets import Connack, Connect
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode, connack_return_code

_ACCEPTANCES: Final = {present: encode(Connack(present, 0), V311) for present in (False, True)}
"""The CONNACKs before 5.0, by Session Present, which 3.1 does not have."""


def check(packet: Connect, peer: Peer, authorizer: Authorizer, namespaces: Namespaces) -> None:
    """Raises a `PeerError` for a well-formed CONNECT that the broker does not accept [MQTT-3.1.4-2].

    Any client identifier of at most `MAX_CLIENT_ID_CHARACTERS` is accepted [MQTT-3.1.3-5]. Before 5.0 an empty one
    needs clean session [3.1.1 MQTT-3.1.3-9].
    """
    check_connect(peer.capabilities, packet)
    method = packet.properties.authentication_method
    if method is not None and method not in peer.methods:  # [MQTT-4.12.0-1]
        raise BadAuthenticationMethod(f"authentication method {method[:64]!r} is not known here")
    if not packet.client_id and (packet.version < V311 or (packet.version == V311 and not packet.clean_start)):
        raise ClientIdentifierNotValid("a client identifier may be empty only with clean session [3.1.1 MQTT-3.1.3-8]")
    characters = len(packet.client_id)
    if characters > MAX_CLIENT_ID_CHARACTERS:
        raise ClientIdentifierNotValid(
            f"client identifier of {characters} characters, at most {MAX_CLIENT_ID_CHARACTERS} accepted [MQTT-3.1.3-8]"
        )
    if packet.will is not None:
        check_name(packet.will.topic)
        if is_own(packet.will.topic) and not allows_will(authorizer, packet.will.topic):
            raise NotAuthorized("the will's topic is $SYS or below, where clients may not publish")
        namespaces.check_is_served(packet.will.topic)
        check_response_topic(packet.will.properties)


def expiry_interval(packet: Connect, limits: Limits) -> int:
    """How long the session outlives the connection, in seconds (§3.1.2.11.2; in 3.1.1, clean session decides)."""
    if packet.version == V5:
        wanted = packet.properties.session_expiry_interval or 0
    else:
        wanted = 0 if packet.clean_start else NEVER_EXPIRES
    return min(wanted, limits.max_session_expiry_s)


def keep_alive(packet: Connect, limits: Limits) -> int:
    """The keep-alive in force, in seconds: the client's, or the server's if that is shorter [MQTT-3.2.2-21].

    A 5.0 client learns the server's from CONNACK. An older client cannot learn it, and is closed after it all the same:
    with a keep-alive of 0 it could keep a dead connection open for ever.
    """
    ours = limits.server_keep_alive_s  # 0 where the client's is always in force [MQTT-3.2.2-22]
    if ours and (packet.keep_alive == 0 or packet.keep_alive > ours):
        return ours
    return packet.keep_alive


def check_response_topic(properties: Properties) -> None:
    """Raises `ProtocolError` for a response topic that is not a topic name."""
    topic = properties.response_topic
    if topic is not None and (not topic or "+" in topic or "#" in topic):
        raise ProtocolError(f"response topic {topic[:64]!r} is no topic name [MQTT-3.3.2-14]")


def acceptance(
    connection: Connection, packet: Connect, limits: Limits, data: bytes | None = None, compares: bool = False
) -> bytes:
    """The CONNACK that accepts a client, with the properties that differ from the standard's defaults.

    `data` is the last data of an authentication method. `compares` answers a client that asked for it: the publish
    times of its retained messages count (`PublishOrder`).
    The packet has no reason string, and a user property only as the answer to one in CONNECT [MQTT-3.2.2-20].
    """
    if packet.version != V5:
        return _ACCEPTANCES[connection.session_present and packet.version == V311]
    asked = packet.properties.session_expiry_interval or 0
    offered = connection.peer.capabilities
    wants_response_information = packet.properties.request_response_information == 1  # [MQTT-3.1.2-28]
    response_information = offered.response_information.replace("%c", connection.client_id)
    properties = Properties(
        session_expiry_interval=None if asked == connection.session_expiry_s else connection.session_expiry_s,
        receive_maximum=limits.receive_maximum,
        maximum_packet_size=limits.max_packet_bytes,
        topic_alias_maximum=limits.topic_alias_maximum,
        authentication_method=packet.properties.authentication_method,  # [MQTT-4.12.0-5] [MQTT-4.12.0-6]
        authentication_data=data,
        assigned_client_identifier=None if packet.client_id else connection.client_id,  # [MQTT-3.1.3-7]
        server_keep_alive=None if packet.keep_alive == connection.keep_alive_s else connection.keep_alive_s,
        maximum_qos=offered.maximum_qos if offered.maximum_qos < 2 else None,  # [MQTT-3.2.2-9]
        retain_available=None if offered.retain_available else 0,
        wildcard_subscription_available=None if offered.wildcards_available else 0,
        shared_subscription_available=None if offered.shared_subscriptions_available else 0,
        subscription_identifier_available=None if offered.subscription_identifiers_available else 0,
        response_information=response_information if response_information and wants_response_information else None,
        user_properties=[(PUBLISHED, "1")] if compares else [],
    )
    return encode(Connack(connection.session_present, 0, properties), V5)  # [MQTT-3.1.4-5]


def refusal(version: int, error: PeerError, largest: int) -> bytes:
    """The CONNACK that refuses a client. Empty if the protocol version has no code for the error; the connection then
    just closes.

    `largest` is the client's Maximum Packet Size, 0 for none [MQTT-3.1.2-24]. Session Present is 0 [MQTT-3.2.2-6]
    [3.1.1 MQTT-3.2.2-4]. Before 5.0 there is no code for a malformed CONNECT [3.1.1 MQTT-3.1.4-1] [3.1.1 MQTT-3.2.2-6].
    """
    if version == V5:
        reference = error.server_reference if isinstance(error, UseAnotherServer) else None
        properties = Properties(reason_string=str(error), server_reference=reference)
        frame = encode(Connack(False, error.reason_code, properties), V5)
        if 0 < largest < len(frame):
            frame = encode(Connack(False, error.reason_code), V5)  # [MQTT-3.2.2-19]
        return b"" if 0 < largest < len(frame) else frame
    if version == 0 and not isinstance(error, UnsupportedProtocolVersion):
        return b""
    is_jailed = isinstance(error, TooManyFailedLogins)
    code = connack_return_code(ReasonCode.NOT_AUTHORIZED if is_jailed else error.reason_code)
    return b"" if code is None else encode(Connack(False, code), V311)
