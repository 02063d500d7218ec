"""A message that was here before, or crossed too many bridges, is not published again."""

import pytest

from mqttlite.extensions.bridge.path import MAX_BYTES, PROPERTY, refusal, refusal_to_send, with_sender
from mqttlite.wire.properties import NONE, Properties


def test_each_broker_on_the_way_adds_its_id_and_leaves_the_other_properties() -> None:
    properties = Properties(content_type="text/plain", user_properties=[("k", "v"), (PROPERTY, "a,b")])
    found = with_sender(properties, "c")
    assert found.user_properties == [("k", "v"), (PROPERTY, "a,b,c")]
    assert found.content_type == "text/plain"
    assert with_sender(NONE, "c").user_properties == [(PROPERTY, "c")]
    assert NONE.user_properties == []


@pytest.mark.parametrize(
    ("value", "reason"), [("a,b", ""), ("a,us", "it was here before"), ("a,b,c", "it crossed more than 2 bridges")]
)
def test_a_message_is_refused_by_its_path(value: str, reason: str) -> None:
    assert refusal(Properties(user_properties=[(PROPERTY, value)]), "us", 2) == reason
    assert refusal(NONE, "us", 2) == ""


def test_a_path_that_a_client_wrote_is_not_carried_if_it_is_too_long() -> None:
    forged = Properties(user_properties=[(PROPERTY, "a" * MAX_BYTES)])
    assert refusal(forged, "us", 8) == "its path is too long"
    assert refusal_to_send(with_sender(forged, "us"), 8) == "its path is too long"
    longest = Properties(user_properties=[(PROPERTY, "a" * (MAX_BYTES - 1))])
    assert refusal(longest, "us", 8) == ""
    many = Properties(user_properties=[(PROPERTY, "a,b")])
    assert refusal_to_send(with_sender(many, "us"), 2) == "it crossed more than 2 bridges"
