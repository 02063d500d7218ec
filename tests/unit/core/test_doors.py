"""Doors and verdicts: a message that may not be published gets the same code and reason, however it comes.

`tests/integration/test_doors.py` knocks at the same doors over sockets.
"""

from typing import Final

import pytest

from mqttlite.core.authentication import Grants, Verdict
from mqttlite.core.inbound.priority import LOW, OVERLOADED
from mqttlite.core.limits import Limits
from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import Buckets, BucketTable, Rate
from mqttlite.core.reasons import CREDENTIALS_EXPIRED, HoldReason
from mqttlite.core.source import THE_BROKER, THE_PROGRAM, Source
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.packets import Ack, Connack, Disconnect
from tests.support.core_driver import World
from tests.support.rules import OpenRules
from tests.unit.core.test_payload_check import Even

BAN: Final = "the user is banned"
RATE: Final = Rate(messages_per_s=0.5)
EXPIRE_S: Final = 10.0
POLICIES: Final = {b"typed": TopicPolicy("typed", payload_check=Even()), b"low": TopicPolicy("low", priority=LOW)}

MQTT, HTTP, PROGRAM, ANSWER = DOORS = ("MQTT", "HTTP", "program", "answer")
"""A client, a caller over HTTP, the program that embeds the broker, and the broker's answer to a command."""

OK: Final = (0, "")
HELD: Final = (0, "its link is not read")

TABLE: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "plain": {MQTT: OK, HTTP: OK, PROGRAM: OK, ANSWER: OK},
    "banned": {MQTT: (0x8A, BAN), HTTP: (0x87, BAN), PROGRAM: OK, ANSWER: OK},
    "expired": {MQTT: (0x87, CREDENTIALS_EXPIRED), HTTP: (0x87, CREDENTIALS_EXPIRED), PROGRAM: OK, ANSWER: OK},
    "over quota": {MQTT: HELD, HTTP: (0x97, "more than its quota allows"), PROGRAM: OK, ANSWER: OK},
    "too large": {MQTT: (0x97, "payload of 22 bytes"), HTTP: (0x97, "payload of 22 bytes"), PROGRAM: OK, ANSWER: OK},
    "invalid": dict.fromkeys(DOORS, (0x99, "1 is odd")),
    "low priority": {**dict.fromkeys(DOORS, (0x97, OVERLOADED)), ANSWER: OK},
}
"""By verdict and door. The program and the broker have no login, quota or limit of payloads. A client with a connection
is sent away or not read where a caller is refused."""

MESSAGES: Final = {"too large": ("t", "x" * 22), "invalid": ("typed", "x"), "low priority": ("low", "xx")}


class Policies(OpenRules):
    def policy_of(self, topic: bytes) -> TopicPolicy:
        return POLICIES.get(topic, NO_POLICY)


def over_mqtt(world: World, verdict: str, topic: str, payload: str) -> tuple[int, str]:
    quotas = Quotas(Rates(BucketTable(RATE))) if verdict == "over quota" else None
    client = world.open(must_authenticate=True, quotas=quotas)
    client.connect("c", username="ann", password=b"x")
    world.decide(client, Verdict(0, None, "ann", Grants(expires_at=world.now + EXPIRE_S)))
    if verdict == "expired":
        world.advance(EXPIRE_S + 0.1)
    if client.closed:
        [last] = [each for each in client.received() if isinstance(each, Connack | Disconnect) and each.reason_code]
        return last.reason_code, client.connection.close_detail
    for _ in range(3 if verdict == "over quota" else 1):
        client.publish(topic, payload, 1)
    if client.connection.number in world.take_holds(HoldReason.RATE, is_held=True):
        return HELD
    [ack] = [each for each in client.received() if isinstance(each, Ack)]
    return ack.reason_code, ack.properties.reason_string or ""


def from_inside(world: World, door: str, verdict: str, topic: str, payload: str) -> tuple[int, str]:
    buckets = [("client", Buckets(RATE, world.now))] if verdict == "over quota" else []
    grants = Grants(expires_at=world.now + EXPIRE_S)
    caller = world.broker.publisher("c", "ann", grants, address="192.0.2.7:5", buckets=buckets)
    source: Source = {HTTP: caller, PROGRAM: THE_PROGRAM, ANSWER: THE_BROKER}[door]
    if verdict == "expired":
        world.advance(EXPIRE_S + 0.1)
    for _ in range(3 if verdict == "over quota" else 1):
        ticket = world.broker.publish(topic.encode(), payload.encode(), 1, False, world.now, source=source)
    assert ticket.done
    return ticket.tally.code, ticket.tally.refusal


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("verdict", TABLE)
def test_every_door_gives_the_verdict_of_the_table(verdict: str, door: str) -> None:
    world = World(Limits(max_payload_bytes=20))
    world.broker.authorize(built_in_rules(authorizer=Policies()))
    world.connect("r").subscribe("#", qos=1)
    world.broker.effects.sheds_low_priority = True
    if verdict == "banned":
        world.broker.ban_by(lambda client_id, username, address: BAN if username == "ann" else "")
    topic, payload = MESSAGES.get(verdict, ("t", "xx"))
    if door == MQTT:
        code, reason = over_mqtt(world, verdict, topic, payload)
    else:
        code, reason = from_inside(world, door, verdict, topic, payload)
    expected_code, sentence = TABLE[verdict][door]
    assert (code, sentence in reason, bool(sentence)) == (expected_code, True, bool(reason)), reason
