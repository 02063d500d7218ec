"""What an attacker says: every packet of MQTT to every kind of topic, whole and hurt, and requests to every route."""

import json
import random
import re

from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import (
    Ack,
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from mqttlite.wire.properties import NONE, Properties
from tests.fuzz.test_wire import FRAMES, hurt
from tests.unit.gateway.test_permissions_of_routes import ROUTES

MARK = b"ATTACK"

TOPICS = [
    *(b"secret/now", b"secret/kept", b"secret/orders", b"secret", b"public/now", b"public/kept", b"drop/weak/a"),
    *(b"drop/weak", b"drop/other", b"$SYS/broker/version", b"$SYS/broker/uptime", b"$SYS/x", b"/secret/now"),
    *(b"$CONTROL/dynamic-security/v1", b"$CONTROL/x", b"$queue/orders", b"$dlq/orders", b"$dlq/orders/1"),
    *(b"$delayed/1/secret/now", b"$delayed/0/secret/kept", b"$delayed/1/$SYS/x", b"$delayed/1/drop/weak/later"),
    *(b"$delayed/1/$delayed/1/secret/now", b"$delayed/1/$CONTROL/dynamic-security/v1", b"$share/g/secret/now"),
    *(b"secret//now", b"secret/now/", b"SECRET/now", "ſecret/now".encode(), b"drop/weak/../../secret/now", b"other"),
]
FILTERS = [
    *(
        b"#",
        b"+/#",
        b"+/+",
        b"/#",
        b"secret/#",
        b"secret/now",
        b"secret/+",
        b"+/now",
        b"+/kept",
        b"$SYS/#",
        b"$SYS/+/+",
    ),
    *(
        b"$queue/orders",
        b"$queue/+",
        b"$queue/#",
        b"$dlq/#",
        b"$dlq/orders",
        b"$delayed/#",
        b"$delayed/1/#",
        b"$CONTROL/#",
    ),
    *(
        b"$share/g/#",
        b"$share/g/secret/#",
        b"$share/g/$SYS/#",
        b"$share/g/$queue/orders",
        b"$share/g/public/#",
        b"$share//#",
    ),
    *(b"public/#", b"public/now", b"+/+?payload.x > 1", b"secret/#?hasPrefix", b"drop/weak/#", b"$+/#", b"$#", b"+"),
]
COMMANDS = [
    {"command": "createClient", "username": "mallory", "password": "x"},
    {"command": "addClientRole", "username": "weak", "rolename": "admin"},
    {"command": "listClients"},
    {"command": "getClient", "username": "neighbour"},
    {"command": "setDefaultACLAccess", "acls": [{"acltype": "subscribe", "allow": True}]},
    {"command": "disableClient", "username": "neighbour"},
]


class Hostile:
    """What one attacker says; `username` is its own, if it has one."""

    def __init__(self, rng: random.Random, username: str | None, password: bytes) -> None:
        self._rng = rng
        self._username = username
        self._password = password

    def chunks(self, version: int) -> list[bytes]:
        """The pieces of one connection: a session, a hurt one, packets before CONNECT, or garbage."""
        rng = self._rng
        whole = [encode(packet, version) for packet in self._session(version)]
        dice = rng.random()
        if dice < 0.15:
            rng.shuffle(whole)
        elif dice < 0.45:
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(whole))
                whole[at] = hurt(whole[at], rng)
        elif dice < 0.55:
            whole += [hurt(rng.choice(FRAMES), rng) for _ in range(rng.randint(1, 5))]
        elif dice < 0.6:
            whole = [rng.randbytes(rng.choice((1, 10, 1_000)))]
        stream = b"".join(whole)
        cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randint(0, 4)))
        return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    def _session(self, version: int) -> list[Packet]:
        rng = self._rng
        return [self._connect(version), *(self._packet(version) for _ in range(rng.randint(0, 15)))]

    def _connect(self, version: int) -> Connect:
        rng = self._rng
        username, password = self._username, self._password
        if username is None and rng.random() < 0.5:
            username = rng.choice(("neighbour", "watch", "weak", "admin", "", "neighbour\u0131", "%u", "+", "#"))
            password = rng.choice((b"", b"password", b"neighbour", MARK, b"x" * 2_000))
        will = None
        if rng.random() < 0.4:
            will = Will(rng.choice(TOPICS), MARK, rng.randint(0, 2), rng.random() < 0.5)
        properties = NONE
        if version == V5:
            properties = Properties(
                session_expiry_interval=rng.choice((None, 0, 1, 0xFFFF_FFFF)),
                topic_alias_maximum=rng.choice((None, 0, 3)),
                maximum_packet_size=rng.choice((None, 60, 65_535)),
                receive_maximum=rng.choice((None, 1, 10)),
                authentication_method=rng.choice((None, None, None, "SCRAM-SHA-256", "x")),
            )
        # the neighbours' own client identifiers are among them: nobody may take over another user's connection
        name = rng.choice(("speaker", "listener", "watch", f"rude{rng.randrange(50)}", f"rude{rng.randrange(50)}"))
        said = password if username is not None else None
        return Connect(
            name, version, rng.random() < 0.5, rng.choice((0, 1)), username, said, will, properties=properties
        )

    def _packet(self, version: int) -> Packet:
        rng = self._rng
        packet_id = rng.randint(1, 6)
        dice = rng.random()
        if dice < 0.45:
            return self._publish(version, packet_id)
        if dice < 0.8:
            filters = (rng.choice(FILTERS) for _ in range(rng.choice((1, 1, 2, 8))))
            return Subscribe(packet_id, tuple(SubscriptionRequest(each, rng.randint(0, 2)) for each in filters))
        return rng.choice(
            (
                Ack(rng.choice((4, 5, 6, 7)), packet_id),
                Unsubscribe(packet_id, (rng.choice(FILTERS),)),
                Pingreq(),
                Disconnect(rng.choice((0, 4)) if version == V5 else 0),
                Auth(0x18) if version == V5 else Pingreq(),
            )
        )

    def _publish(self, version: int, packet_id: int) -> Publish:
        rng = self._rng
        topic, qos = rng.choice(TOPICS), rng.randint(0, 2)
        payload = rng.choice((MARK, MARK + rng.randbytes(3_000), json.dumps({"commands": COMMANDS}).encode(), b""))
        properties = NONE
        if version == V5 and rng.random() < 0.3:
            alias = rng.randint(1, 70)
            topic = rng.choice((topic, b""))
            properties = Properties(topic_alias=alias)
        return Publish(topic, payload, qos, rng.random() < 0.4, False, packet_id if qos else 0, properties)

    def frame(self, data: bytes) -> bytes:
        """The same in a WebSocket frame of a client; sometimes a wrong one."""
        rng = self._rng
        first = rng.choice((0x82, 0x82, 0x82, 0x82, 0x82, 0x81, 0x02, 0x89, 0x88, 0xF2))
        head = bytes([first]) + (
            bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0xFE]) + (len(data) & 0xFFFF).to_bytes(2)
        )
        whole = head + bytes(4) + data[:65_535]
        return hurt(whole, rng) if rng.random() < 0.1 else whole

    def request(self, credentials: bytes | None) -> bytes:
        """One request to the gateway: any route, with parameters that may matter to it."""
        rng = self._rng
        method, path = rng.choice(list(ROUTES))
        topic = rng.choice(TOPICS).decode()
        names = (topic, topic.replace("/", "%2F"), "orders", "x", "secret%2Fnow", "neighbour", "..%2Fsecret")
        path = re.sub(r"\{[^}]*\}", lambda _found: rng.choice(names), path)
        query = rng.choice(
            ("", "?topic=secret/%23", "?filter=%23", "?client=speaker", "?q=secret", "?topic=secret/now")
        )
        body = rng.choice(
            (
                b"",
                json.dumps({"topic": topic, "payload": MARK.decode(), "messages": [{"data": "QVRUQUNL"}]}).encode(),
                json.dumps({"payload": MARK.decode(), "retain": True, "qos": 1}).encode(),
                MARK,
            )
        )
        lines = [f"{method if method.isupper() else 'GET'} {path}{query} HTTP/1.1", "Host: localhost"]
        lines += [f"Content-Length: {len(body)}", "Connection: close"]
        lines += rng.choice(([], ["Content-Type: application/json"], ["Content-Type: application/cloudevents+json"]))
        if credentials is not None:
            lines.append(f"Authorization: Basic {credentials.decode()}")
        elif rng.random() < 0.3:
            lines.append(rng.choice(("Authorization: Bearer mqk_wrong", "Authorization: Basic bmVpZ2hib3VyOng=")))
        request = "\r\n".join(lines).encode(errors="replace") + b"\r\n\r\n" + body
        return hurt(request, rng) if rng.random() < 0.1 else request
