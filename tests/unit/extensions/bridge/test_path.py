"""A message that was here before, or crossed too many bridges, is not published again."""

import pytest

from mqttlite.extensions.bridge.path import PROPERTY, refusal, with_sender
from mqttlite.wire.properties import NONE, Properties


def test_each_broker_on_the_way_adds_its_id_and_leaves_the_other_properties() -> None:
    properties = Properties(content_type="text/plain", user_properties=[("k", "v"), (PROPERTY, "a,b")])
    found = with_sender(properties, "c")
    assert found.user_properties == [("k", "v"), (PROPERTY, "a,b,c")]
    assert found.content_type == "text/plain"
    assert with_sender(NONE, "c").user_properties == [(PROPERTY, "c")]
    assert NONE.user_properties == []


@pytest.mark.parametrize(
    ("value", "reason"), [("a,b", ""), ("a,us", "it was here before"), ("a,b,c", "it crossed 3 bridges")]
)
def test_a_message_is_refused_by_its_path(value: str, reason: str) -> None:
    assert refusal(Properties(user_properties=[(PROPERTY, value)]), "us", 2) == reason
    assert refusal(NONE, "us", 2) == ""
