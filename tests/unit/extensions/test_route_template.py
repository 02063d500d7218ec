"""The topics that routes send to."""

import pytest

from mqttlite.extensions.routes.options import MAX_FILTERS, MAX_NAME, RouteOptions
from mqttlite.extensions.routes.template import Template, Unfilled
from mqttlite.wire.properties import NONE, Properties

PAYLOAD = (
    b'{"region": "eu", "n": 7, "ok": true, "share": 0.5, "items": [{"id": "x"}], "bad": "a/b", "empty": "", "o": {}}'
)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain/topic", "plain/topic"),
        ("copies/{topic}", "copies/pickups/7/new"),
        ("{topic[1]}/{topic[0]}", "7/pickups"),
        ("r/{payload.region}/{payload.n}", "r/eu/7"),
        ("{payload.ok}-{payload.share}", "true-0.5"),
        ("{payload.items[0].id}", "x"),
        ("by/{attributes.shop-id}", "by/s1"),
    ],
)
def test_fields_are_filled_in(text: str, filled: str) -> None:
    properties = Properties(user_properties=[("other", "o"), ("shop-id", "s1"), ("shop-id", "s2")])
    assert Template(text).fill("pickups/7/new", PAYLOAD, properties) == filled


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{payload.none}", "there is no payload.none that is text or a number"),
        ("{payload.o}", "there is no payload.o that is text or a number"),
        ("{payload.bad}", "payload.bad is 'a/b', which is no level"),
        ("{payload.empty}", "payload.empty is '', which is no level"),
        ("{topic[3]}", r"there is no topic\[3\]: the topic has 3 levels"),
        ("{attributes.none}", "there is no attributes.none"),
        ("x" * 65_530 + "/{topic}", "is no topic"),
    ],
)
def test_a_message_without_the_field_is_not_sent(text: str, why: str) -> None:
    with pytest.raises(Unfilled, match=why):
        Template(text).fill("pickups/7/new", PAYLOAD, NONE)


def test_a_payload_that_is_no_json_and_a_topic_of_the_broker_are_not_sent() -> None:
    with pytest.raises(Unfilled, match=r"payload\.region"):
        Template("{payload.region}").fill("a", b"\xff", NONE)
    with pytest.raises(Unfilled, match=r"begins with \$"):
        Template("{topic}").fill("$SYS/x", b"", NONE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no topic"),
        ("a/#", "is no topic"),
        ("$SYS/{topic}", "begins with"),
        ("{payload}", "is no field"),
        ("{qos}", "is no field"),
        ("{payload.}", "is no field"),
        ("{topic[-1]}", "is no field"),
        ("a{", "brace"),
        ("a}b", "brace"),
        ("{{topic}}", "brace"),
    ],
)
def test_a_template_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Template(text)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": ""}, "name is ''"),
        ({"name": "x" * (MAX_NAME + 1)}, "printable characters"),
        ({"filters": ()}, "filters has 0"),
        ({"filters": ("a",) * (MAX_FILTERS + 1)}, f"filters has {MAX_FILTERS + 1}"),
        ({"filters": ("a/#/b",)}, "filters: "),
        ({"filters": ("$share/g/a",)}, "filters: "),
        ({"where": "payload ="}, "where: "),
        ({"to": "a/+"}, "to: "),
    ],
)
def test_wrong_options_are_refused(changed: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        RouteOptions(**({"name": "r", "filters": ("a",), "to": "b"} | changed))  # type: ignore[arg-type]
