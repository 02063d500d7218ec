"""Payloads, rights and subjects of Sparkplug."""

import pytest

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.authorizer import PUBLISH
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.extensions.sparkplug.sparkplug import right_of, subject_of, with_timestamp
from mqttlite.security.built_in_rules import built_in_rules
from tests.support.rules import OpenRules

METRIC = b"\x12\x04\x0a\x02ab"
"""Field 2: a metric named `ab`."""


@pytest.mark.parametrize(
    ("payload", "changed"),
    [
        (b"\x08\x05" + METRIC + b"\x18\x07", b"\x08\xac\x02" + METRIC + b"\x18\x07"),
        (METRIC, b"\x08\xac\x02" + METRIC),
        (METRIC + b"\x08\x80\x80\x01", b"\x08\xac\x02" + METRIC),
        (b"", b"\x08\xac\x02"),
        (b"\x2d1234" + b"\x3112345678", b"\x08\xac\x02" + b"\x2d1234" + b"\x3112345678"),
    ],
)
def test_the_timestamp_is_set_and_the_rest_stays(payload: bytes, changed: bytes) -> None:
    assert with_timestamp(payload, 300) == changed


@pytest.mark.parametrize(
    "payload", [b"\x12\x09ab", b"\x08", b"\x80", b"\x08" + b"\xff" * 11, b"\x2d12", b"\x0b", b"\x12", b"{}"]
)
def test_other_payloads_stay_as_they_are(payload: bytes) -> None:
    assert with_timestamp(payload, 300) is None


def test_only_the_broker_publishes_certificates() -> None:
    for topic in (b"$sparkplug", b"$sparkplug/certificates/spBv1.0/g/NBIRTH/n"):
        right = right_of(topic)
        assert right is not None
        assert not right.topic
    assert right_of(b"$sparkplugs/a") is None
    rules = built_in_rules(extensions=BUILT_IN.values())
    assert not rules.is_open(b"$sparkplug/certificates/a")
    assert not rules.may_publish(0, b"$sparkplug/certificates/a")
    assert "keeps certificates there" in rules.reason(0, PUBLISH, b"$sparkplug/certificates/a")
    assert not rules.is_open(b"$dlq/a"), "what other features say holds too"
    assert built_in_rules().is_open(b"$sparkplug/certificates/a"), "without the option it is a topic like any other"


def test_a_certificate_is_for_those_who_may_receive_its_birth() -> None:
    class Rules(OpenRules):
        def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
            return int(client_id == "in")

        def is_readable(self, topic: bytes) -> bool:
            return not topic.startswith(b"spBv1.0/")

        def may_receive(self, role: int, topic: bytes) -> bool:
            return role == 1

        def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
            return role == 1 or not topic_filter.startswith(b"spBv1.0/")

    assert subject_of(b"$sparkplug/certificates/spBv1.0/g/NBIRTH/n") == b"spBv1.0/g/NBIRTH/n"
    assert subject_of(b"$sparkplug/other") == b""
    rules = built_in_rules(authorizer=Rules(), extensions=BUILT_IN.values())
    topic = b"$sparkplug/certificates/spBv1.0/g/NBIRTH/n"
    inside, outside = (rules.role_of(each, None, NO_GRANTS) for each in ("in", "out"))
    assert not rules.is_readable(topic)
    assert rules.may_receive(inside, topic)
    assert not rules.may_receive(outside, topic)
    assert rules.may_subscribe(inside, b"$sparkplug/certificates/spBv1.0/#")
    assert not rules.may_subscribe(outside, b"$share/g/$sparkplug/certificates/spBv1.0/#")
    assert rules.is_readable(b"$SYS/broker/uptime"), "what other features say holds too"
