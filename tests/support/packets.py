"""Packets for tests: bytes as one reads them in the standard, and hypothesis strategies for every packet.

What a packet may carry is written down here a second time, from the text of MQTT 5.0 and not from our tables.
"""

import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from mqttlite.wire import constants as c
from mqttlite.wire.decode import decode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqttlite.wire.properties import NONE, Properties

VERSIONS = (c.V31, c.V311, c.V5)


def raw(text: str) -> bytes:
    """Hex digits and 'quoted text' as bytes: `30 07 0003 'a/b' 'hi'`."""
    parts = re.findall(r"'([^']*)'|([0-9a-fA-F]+)", text)
    return b"".join(quoted.encode() or bytes.fromhex(digits) for quoted, digits in parts)


def decode_frame(frame: bytes, version: int) -> Packet:
    """The packet of one whole frame; the frame's length must be true."""
    ((first, body),) = Framer(c.MAX_REMAINING_LENGTH + 5).split(frame)
    return decode(first, body, version)


# ── fields ─────────────────────────────────────────────────────────────────────────────────────────────────────────

CHARACTERS = "az09/+#$ \x01\x7f\x80\u07ff\u0800\ud7ff\ue000\ufeff\uffff\U00010000\U0010ffff"
"""The ends of every range of UTF-8, and what topics and lazy parsers give a meaning to."""

texts = st.text(CHARACTERS, max_size=12)
names = texts.map(str.encode)
blobs = st.binary(max_size=24)
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)
flags = st.integers(0, 1)
packet_ids = st.integers(1, 0xFFFF)
qos_levels = st.integers(0, 2)
subscription_identifiers = st.integers(1, c.MAX_REMAINING_LENGTH)

# ── properties ─────────────────────────────────────────────────────────────────────────────────────────────────────

_USER: dict[str, Any] = {"user_properties": st.lists(st.tuples(texts, texts), max_size=3)}
_REASON: dict[str, Any] = _USER | {"reason_string": texts}
_MESSAGE: dict[str, Any] = _USER | {
    "payload_format_indicator": flags,
    "message_expiry_interval": u32,
    "content_type": texts,
    "response_topic": texts,
    "correlation_data": blobs,
}
_AUTHENTICATION: dict[str, Any] = {"authentication_method": texts, "authentication_data": blobs}
_SESSION: dict[str, Any] = _USER | {
    "session_expiry_interval": u32,
    "receive_maximum": st.integers(1, 0xFFFF),
    "maximum_packet_size": st.integers(1, 0xFFFF_FFFF),
    "topic_alias_maximum": u16,
}

CARRIES: dict[str, dict[str, Any]] = {
    "CONNECT": _SESSION
    | _AUTHENTICATION
    | {"request_problem_information": flags, "request_response_information": flags},
    "will": _MESSAGE | {"will_delay_interval": u32},
    "CONNACK": _SESSION
    | _AUTHENTICATION
    | _REASON
    | {
        "maximum_qos": flags,
        "retain_available": flags,
        "assigned_client_identifier": texts,
        "wildcard_subscription_available": flags,
        "subscription_identifier_available": flags,
        "shared_subscription_available": flags,
        "server_keep_alive": u16,
        "response_information": texts,
        "server_reference": texts,
    },
    "PUBLISH": _MESSAGE
    | {
        "topic_alias": st.integers(1, 0xFFFF),
        "subscription_identifiers": st.lists(subscription_identifiers, max_size=3),
    },
    "PUBACK": _REASON,
    "PUBREC": _REASON,
    "PUBREL": _REASON,
    "PUBCOMP": _REASON,
    "SUBSCRIBE": _USER | {"subscription_identifiers": st.lists(subscription_identifiers, max_size=1)},
    "SUBACK": _REASON,
    "UNSUBSCRIBE": _USER,
    "UNSUBACK": _REASON,
    "DISCONNECT": _REASON | {"session_expiry_interval": u32, "server_reference": texts},
    "AUTH": _REASON | _AUTHENTICATION,
}
"""What each packet of 5.0 may carry, and in which range (§3.1.2.11 to §3.15.2.2)."""


def properties(packet: str, version: int) -> st.SearchStrategy[Properties]:
    """Properties for that packet (or `will`); none before 5.0."""
    if version != c.V5:
        return st.just(NONE)

    def build(fields: dict[str, Any]) -> Properties:
        if "authentication_method" not in fields:
            fields.pop("authentication_data", None)
        return Properties(**fields)

    return st.fixed_dictionaries({}, optional=CARRIES[packet]).map(build)


# ── reason codes ───────────────────────────────────────────────────────────────────────────────────────────────────

_PUBLISH_REFUSED = "10 80 83 87 90 91 97 99"
REASON_CODES: dict[str, bytes] = {
    "CONNACK": raw("00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f"),
    "PUBACK": raw("00" + _PUBLISH_REFUSED),
    "PUBREC": raw("00" + _PUBLISH_REFUSED),
    "PUBREL": raw("00 92"),
    "PUBCOMP": raw("00 92"),
    "SUBACK": raw("00 01 02 80 83 87 8f 91 97 9e a1 a2"),
    "UNSUBACK": raw("00 11 80 83 87 8f 91"),
    "DISCONNECT": raw("00 04 80 81 82 83 87 89 8b 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2"),
    "AUTH": raw("00 18 19"),
}
"""The reason codes of each packet of 5.0, from the table in its section."""

RETURN_CODES: dict[str, bytes] = {"CONNACK": raw("00 01 02 03 04 05"), "SUBACK": raw("00 01 02 80")}
"""The codes of 3.1.1, which has them in these two packets only."""


def reason_codes(packet: str, version: int) -> st.SearchStrategy[int]:
    return st.sampled_from((REASON_CODES if version == c.V5 else RETURN_CODES)[packet])


# ── packets ────────────────────────────────────────────────────────────────────────────────────────────────────────


def publishes(version: int) -> st.SearchStrategy[Publish]:
    return qos_levels.flatmap(
        lambda qos: st.builds(
            Publish,
            names,
            blobs,
            st.just(qos),
            st.booleans(),
            st.booleans() if qos else st.just(False),
            packet_ids if qos else st.just(0),
            properties("PUBLISH", version),
        )
    )


def acks(packet_type: int, version: int) -> st.SearchStrategy[Ack]:
    name = c.PACKET_NAMES[packet_type]
    code = reason_codes(name, version) if version == c.V5 else st.just(0)
    return st.builds(Ack, st.just(packet_type), packet_ids, code, properties(name, version))


def connects(version: int) -> st.SearchStrategy[Connect]:
    will = st.builds(Will, names, blobs, qos_levels, st.booleans(), properties("will", version))
    password = st.tuples(texts, blobs) | st.tuples(texts, st.none()) | st.tuples(st.none(), st.none())
    if version == c.V5:
        password |= st.tuples(st.none(), blobs)  # allowed since 5.0 (§3.1.2.9)

    def build(
        client_id: str, clean: bool, keep_alive: int, who: Any, will: Will | None, carried: Properties
    ) -> Connect:
        return Connect(client_id, version, clean, keep_alive, who[0], who[1], will, carried)

    return st.builds(build, texts, st.booleans(), u16, password, st.none() | will, properties("CONNECT", version))


def connacks(version: int) -> st.SearchStrategy[Connack]:
    session_present = st.just(False) if version == c.V31 else st.booleans()
    return st.builds(Connack, session_present, reason_codes("CONNACK", version), properties("CONNACK", version))


def subscribes(version: int) -> st.SearchStrategy[Subscribe]:
    if version == c.V5:
        request = st.builds(SubscriptionRequest, names, qos_levels, st.booleans(), st.booleans(), st.integers(0, 2))
    else:
        request = st.builds(SubscriptionRequest, names, qos_levels)
    requests = st.lists(request, min_size=1, max_size=4).map(tuple)
    return st.builds(Subscribe, packet_ids, requests, properties("SUBSCRIBE", version))


def subacks(version: int) -> st.SearchStrategy[Suback]:
    codes = st.lists(reason_codes("SUBACK", version), max_size=4).map(bytes)
    return st.builds(Suback, packet_ids, codes, properties("SUBACK", version))


def unsubscribes(version: int) -> st.SearchStrategy[Unsubscribe]:
    topic_filters = st.lists(names, min_size=1, max_size=4).map(tuple)
    return st.builds(Unsubscribe, packet_ids, topic_filters, properties("UNSUBSCRIBE", version))


def unsubacks(version: int) -> st.SearchStrategy[Unsuback]:
    codes = st.lists(reason_codes("UNSUBACK", version), max_size=4).map(bytes) if version == c.V5 else st.just(b"")
    return st.builds(Unsuback, packet_ids, codes, properties("UNSUBACK", version))


def disconnects(version: int) -> st.SearchStrategy[Disconnect]:
    code = reason_codes("DISCONNECT", version) if version == c.V5 else st.just(0)
    return st.builds(Disconnect, code, properties("DISCONNECT", version))


def auths(version: int) -> st.SearchStrategy[Auth]:
    assert version == c.V5

    def build(code: int, method: str, carried: Properties) -> Auth:
        carried.authentication_method = method
        return Auth(code, carried)

    return st.just(Auth()) | st.builds(build, reason_codes("AUTH", version), texts, properties("AUTH", version))


KINDS: dict[str, Callable[[int], st.SearchStrategy[Packet]]] = {
    "CONNECT": connects,
    "CONNACK": connacks,
    "PUBLISH": publishes,
    "PUBACK": lambda version: acks(c.PUBACK, version),
    "PUBREC": lambda version: acks(c.PUBREC, version),
    "PUBREL": lambda version: acks(c.PUBREL, version),
    "PUBCOMP": lambda version: acks(c.PUBCOMP, version),
    "SUBSCRIBE": subscribes,
    "SUBACK": subacks,
    "UNSUBSCRIBE": unsubscribes,
    "UNSUBACK": unsubacks,
    "PINGREQ": lambda _version: st.just(Pingreq()),
    "PINGRESP": lambda _version: st.just(Pingresp()),
    "DISCONNECT": disconnects,
    "AUTH": auths,
}
"""A strategy for each kind of packet, by its name."""


def kinds(version: int) -> list[str]:
    """The packets that exist in that version."""
    return [name for name in KINDS if version == c.V5 or name != "AUTH"]
