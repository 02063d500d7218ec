"""The filter language: what an expression means, what it may not say, and what hostile ones and messages cost."""

import re
import time

import pytest

from mqttlite.filters import Evaluated, Fields, Filter, FilterError, Filters
from mqttlite.filters.grammar import MAX_FILTER_BYTES, parser
from mqttlite.filters.json_payload import KEPT_BYTES, MAX_JSON_BYTES, MISSING, at_path, decoded
from mqttlite.filters.nodes import MAX_CONDITIONS, MAX_DEPTH
from mqttlite.wire.properties import Properties


def message(
    payload: str | bytes = "", topic: str = "t", qos: int = 0, retain: bool = False, **attributes: str
) -> Fields:
    body = payload.encode() if isinstance(payload, str) else payload
    return Fields(topic.encode(), body, qos, retain, Properties(user_properties=list(attributes.items())))


def with_pairs(*pairs: tuple[str, str]) -> Fields:
    return Fields(properties=Properties(user_properties=list(pairs)))


# ── Google's own vectors (google-cloud-go, pubsub/pstest) ──────────────────────────────────────────────────────────

MINNA = "\u307f\u3093\u306a"
MESSAGES = {
    1: {"lang": "en", "name": "com", "timezone": "UTC"},
    2: {"lang": "en", "name": "net", "timezone": "UTC"},
    3: {"lang": "en", "name": "org", "timezone": "UTC"},
    4: {"lang": "cn", "name": "com", "timezone": "UTC"},
    5: {"lang": "cn", "name": "net", "timezone": "UTC"},
    6: {"lang": "cn", "name": "org", "timezone": "UTC"},
    7: {"lang": "jp", "name": "co", "timezone": "UTC"},
    8: {"lang": "jp", "timezone": "UTC"},
    9: {"name": "com", "timezone": "UTC"},
    10: {"lang": "jp", MINNA: "dummy1"},
    11: {MINNA: "dummy2"},
    12: {"name": "com", MINNA: "dummy3"},
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('attributes.name = "com"', [1, 4, 9, 12]),
        ('attributes.name != "com"', [2, 3, 5, 6, 7, 8, 10, 11]),
        ('hasPrefix(attributes.name, "co")', [1, 4, 7, 9, 12]),
        ("attributes:name", [1, 2, 3, 4, 5, 6, 7, 9, 12]),
        ("NOT attributes:name", [8, 10, 11]),
        ('(NOT attributes:name) OR attributes.name = "co"', [7, 8, 10, 11]),
        ('NOT (attributes:name OR attributes.lang = "jp")', [11]),
        ('attributes.name = "com" AND -attributes:"lang"', [9, 12]),
        (f'attributes:"{MINNA}"', [10, 11, 12]),
        (r'attributes:"\u307F\u3093\u306A"', [10, 11, 12]),
    ],
)
def test_google_s_vectors(expression: str, expected: list[int]) -> None:
    compiled = Filter(expression)
    assert [number for number, each in MESSAGES.items() if compiled.matches(message(**each))] == expected


GOOGLE = {"iana.org/language_tag": "en", "domain": "com", "head": "food"}


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ('attributes:"iana.org/language_tag" AND attributes.domain = "com"', True),
        ('attributes:"iana.org/language_tag" OR attributes.domain = "org" OR attributes.tag = "dot"', True),
        ('attributes:"iana.org/language_tag" AND (attributes.domain = "net" OR attributes.domain = "org")', False),
        ('attributes:"iana.org/language_tag" AND NOT attributes.domain = "com"', False),
        (
            'attributes:"iana.org/language_tag" AND (attributes.domain = "net" OR hasPrefix(attributes.domain, "co")) '
            'AND NOT hasPrefix(attributes.head, "foo")',
            False,
        ),
        (
            'attributes.domain != "com" OR attributes.language_tag = "en_US" OR '
            '(NOT hasPrefix(attributes.head, "moo") OR attributes.head = "moot")',
            True,
        ),
        (r'attributes."iana.org/language_tag" = "\x65\156"', True),
        ("attributes:Domain", False),
    ],
)
def test_google_s_documented_grammar(expression: str, result: bool) -> None:
    assert Filter(expression).matches(message(**GOOGLE)) is result


# ── what is added ──────────────────────────────────────────────────────────────────────────────────────────────────

ORDER = '{"order": {"total": 1200.5, "items": [{"sku": "a-1"}, {"sku": "b"}], "paid": true, "note": null, "no": "7"}}'


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ('hasAttribute("priority")', True),
        ("hasAttribute('other')", False),
        ('attributes.path: "payments/"', True),
        ('attributes.path: "orders/"', False),
        ("attributes:path", True),
        ("attributes.priority > 2.5", True),
        ("attributes.priority <= 2", False),
        ("attributes.priority = 3", True),
        ("attributes.priority = 3.0", True),
        ("attributes.priority != 3", False),
        ('attributes.priority = "3.0"', False),
        ("attributes.path > 0", False),
        ("attributes.hex > 0", False),
        ("attributes.missing < 1", False),
        ("NOT attributes.missing < 1", True),
        ("attributes.AND = '1'", True),
        ("attributes.12-a_B = '1'", True),
        ("payload.order.total > 1000 AND attributes.priority = '3'", True),
        ("payload.order.total = 1200.5", True),
        ("payload.order.total >= 1.2e3", True),
        ("payload.order.total < -5", False),
        ("payload.order.items[0].sku = 'a-1'", True),
        ("payload.order.items[0].sku: 'a-'", True),
        ("hasPrefix(payload.order.items[1].sku, 'a')", False),
        ("payload.order.items[2].sku = 'a'", False),
        ("payload.order.items.sku = 'a'", False),
        ("payload.order[0] = 1", False),
        ("payload.'order'.paid = true", True),
        ("payload.order.paid = 1", False),
        ("payload.order.paid != false", True),
        ("payload.order.note = null", True),
        ("payload:order.note", True),
        ("payload:order.nothing", False),
        ("payload:'order'", True),
        ("payload.order.no = 7", False),
        ("payload.order.no = '7'", True),
        ("payload.order.no > 6", False),
        ("payload.order.missing != 1", True),
        ("payload = 'x'", False),
        ("topic = 'a/b'", True),
        ("topic != 'a/b'", False),
        ("topic: 'a/'", True),
        ("hasPrefix(topic, 'b')", False),
        ("qos = 1 AND retain = true", True),
        ("qos >= 2 OR retain = false", False),
        ("retain != true", False),
        ("qos != 1", False),
        ("((((qos = 1))))", True),
        ("  qos\n=\t1 ", True),
    ],
)
def test_additions_to_google_s_grammar(expression: str, result: bool) -> None:
    pairs = {"priority": "3", "path": "payments/7", "AND": "1", "12-a_B": "1", "hex": "0x10"}
    assert Filter(expression).matches(message(ORDER, "a/b", 1, True, **pairs)) is result


@pytest.mark.parametrize(
    ("expression", "payload", "result"),
    [
        ("payload > 20", "21.5", True),
        ("payload > 20", "19", False),
        ("payload > 20", "hot", False),
        ("payload > 20", "", False),
        ("payload = 'on'", '"on"', True),
        ("hasPrefix(payload, 'o')", '"on"', True),
        ("payload = true", "true", True),
        ("payload[1] = 5", "[4, 5]", True),
        ("payload[1][0].x = 5", '[4, [{"x": 5}]]', True),
        ("payload:x", '{"x": 1}', True),
        ("payload.x > 1", "no JSON", False),
        ("payload.x != 1", "no JSON", True),
        ("NOT payload:x", "no JSON", True),
        ("payload.x = 1", "[" * 30_000, False),
        ("payload > 1", "1" * 400, True),
        ("payload > 1", "1e999", False),
        ("payload.x > 0", '{"x": NaN}', False),
    ],
)
def test_a_payload_that_is_no_json_matches_no_condition(expression: str, payload: str, result: bool) -> None:
    assert Filter(expression).matches(message(payload)) is result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ('attributes.a = "1"', True),
        ('attributes.a = "2"', True),
        ('attributes.a != "1"', False),
        ('attributes.a != "3"', True),
        ("attributes.a > 1", True),
        ("attributes.a: '2'", True),
    ],
)
def test_of_a_property_that_comes_twice_one_is_enough(expression: str, result: bool) -> None:
    assert Filter(expression).matches(with_pairs(("a", "1"), ("b", "1"), ("a", "2"))) is result


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r'"a\"b\\c"', 'a"b\\c'),
        (r"'it\'s'", "it's"),
        (r'"\n\t\r\a\b\f\v\/\?\`"', "\n\t\r\a\b\f\v/?`"),
        (r'"\U0001F600\x41\X41\101"', "😀AAA"),
        ('"two\nlines"', "two\nlines"),
        ('""', ""),
    ],
)
def test_escape_sequences(written: str, text: str) -> None:
    assert Filter(f"attributes.a = {written}").matches(message(a=text))


@pytest.mark.parametrize("sequence", [r"\q", r"\u12", r"\xZ", r"\777", r"\ud800", r"\UFFFFFFFF"])
def test_text_that_is_no_escape_sequence(sequence: str) -> None:
    with pytest.raises(FilterError, match="is no escape sequence") as raised:
        Filter(f'attributes.a = "ab{sequence}"')
    assert raised.value.position == 19


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expression", "position", "words"),
    [
        ("", 1, "found the end, and expected a condition"),
        ("  ", 3, "found the end, and expected a condition"),
        ("foo = 1", 1, "found foo, and expected a condition"),
        ("attributes", 11, 'expected ":" and the name that a message must have'),
        ("attributes.", 12, "expected a name, in quotes if"),
        ("attributes.a", 13, "expected a comparison: =, !="),
        ("attributes.a.b = 'x'", 13, "found .b, and expected a comparison"),
        ("attributes.a == 'x'", 15, "it is written ="),
        ("attributes.a <> 'x'", 15, "expected a value"),
        ("attributes.a = us", 16, "text is in quotes"),
        ("attributes.a = 'us", 16, "the text has no end"),
        ("attributes.a = 01", 16, "expected a value"),
        ("attributes.a = 'x' and attributes:b", 20, "operators are in upper case: AND"),
        ("not attributes:a", 1, "operators are in upper case: NOT"),
        ("attributes:a && attributes:b", 14, "it is written AND"),
        ("attributes:a OR attributes:b AND attributes:c", 30, "AND and OR are not mixed without parentheses"),
        ("attributes:a AND attributes:b OR attributes:c", 31, "expected AND or the end (AND and OR are not mixed"),
        ("(AND attributes:a)", 2, "expected a condition"),
        ("attributes:a AND", 17, "found the end, and expected a condition"),
        ("(attributes:a", 14, 'expected ")"'),
        ("attributes:a)", 13, "expected AND, OR or the end"),
        ("attributes:a attributes:b", 14, "expected AND, OR or the end"),
        ('"us" = attributes.region', 1, "expected a condition"),
        ("hasPrefix(attributes.a)", 23, "expected a comma"),
        ("hasPrefix attributes.a", 11, 'expected "("'),
        ("hasPrefix(attributes.a, b)", 25, "expected text in quotes"),
        ("hasPrefix(qos, '1')", 11, "only an attribute, the payload or the topic has a prefix"),
        ("payload.a[x] = 1", 11, "expected a number"),
        ("attributes.a < 'x'", 16, "< compares numbers"),
        ("payload.a >= true", 14, ">= compares numbers"),
        ("attributes.a = true", 16, "an attribute is text or a number"),
        ("topic = 1", 9, "a topic is text"),
        ("qos = '1'", 7, "a QoS is a number"),
        ("retain = 1", 10, "retain is true or false"),
        ("attributes.a = '\ud800'", 17, "not text that UTF-8 can hold"),
        ("x" * 30, 1, "found xxxxxxxxxxxxxxxxxxxx…,"),
        ("hasPrefix(attributes", 21, 'expected "." and the name of an attribute'),
        ("payload.items[0 = 1", 17, 'expected "]"'),
    ],
)
def test_an_error_has_its_place_what_is_expected_and_an_example(expression: str, position: int, words: str) -> None:
    with pytest.raises(FilterError) as raised:
        Filter(expression)
    assert raised.value.position == position
    assert words in str(raised.value)


@pytest.mark.parametrize("failing", [None, "a", "b", "c"])
def test_of_three_conditions_each_must_hold(failing: str | None) -> None:
    asked = Filter(" AND ".join(f"attributes:{name}" for name in "abc"))
    assert asked.matches(with_pairs(*[(name, "") for name in "abc" if name != failing])) is (failing is None)


@pytest.mark.parametrize("holding", [None, "a", "b", "c"])
def test_of_three_conditions_one_may_hold(holding: str | None) -> None:
    asked = Filter(" OR ".join(f"attributes:{name}" for name in "abc"))
    assert asked.matches(with_pairs(*[(name, "") for name in "abc" if name == holding])) is (holding is not None)


def test_the_parser_can_be_made_before_the_first_filter() -> None:
    Filters().prepare()
    assert parser.cache_info().currsize == 1


@pytest.mark.long
def test_an_expression_that_lacks_a_part_is_a_filter_or_refused_as_one() -> None:
    whole = (
        """hasPrefix(attributes.a, "p") AND NOT (payload.b[0].c >= 1.5 OR attributes:d OR -retain = true) AND """
        """hasAttribute("e") AND attributes."f g": "h" AND topic != "t" AND qos = 1"""
    )
    Filter(whole)
    parts = re.findall(r'"[^"]*"|[\w.]+|\S', whole)
    shortened = [" ".join(parts[:end]) for end in range(len(parts))]
    shortened += [" ".join(parts[:at] + parts[at + 1 :]) for at in range(len(parts))]
    shortened += [whole[:at] + whole[at + 1 :] for at in range(len(whole))]
    refused = 0
    for expression in shortened:
        try:
            Filter(expression)
        except FilterError:
            refused += 1
    assert refused > len(parts)


@pytest.mark.parametrize(
    ("within", "beyond", "words"),
    [
        (f"attributes:{'a' * (MAX_FILTER_BYTES - 11)}", f"attributes:{'a' * (MAX_FILTER_BYTES - 10)}", "1025 bytes"),
        ("-" * (MAX_DEPTH - 1) + "qos=1", "-" * MAX_DEPTH + "qos=1", "levels of NOT"),
        ("-" * (MAX_DEPTH - 1) + "qos=1", "-" * 1_000 + "qos=1", "levels of NOT"),
        (
            " OR ".join(["qos=1"] * MAX_CONDITIONS),
            " OR ".join(["qos=1"] * (MAX_CONDITIONS + 1)),
            f"it has {MAX_CONDITIONS + 1} conditions",
        ),
    ],
)
def test_limits_of_an_expression(within: str, beyond: str, words: str) -> None:
    Filter(within)
    with pytest.raises(FilterError, match=words):
        Filter(beyond)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 500 + "qos=1" + ")" * 500,
        "(" * 1_000,
        '"' + "\\" * 1_000,
        "attributes." + "a" * 1_000,
        "attributes.a = " + "9" * 1_000,
        "attributes.a = '" + "\\a" * 490 + "'",
        "payload" + "[0]" * 300 + "=1",
        "NOT " * 250 + "qos=1",
        "\0",
        "attributes.a = 'x'" + " " * 1_000,
    ],
)
def test_hostile_expressions_end_soon(expression: str) -> None:
    Filters().compile("qos = 1")  # the parser is made
    began = time.process_time()
    try:
        Filter(expression).matches(message("[" * 1_000))
    except FilterError as error:
        assert len(str(error)) < 300  # noqa: PT017
    assert time.process_time() - began < 0.5


# ── payloads ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_payload_may_be_as_long_as_the_limit() -> None:
    longest = b'"%s"' % (b"x" * (MAX_JSON_BYTES - 2))
    assert at_path(longest, ()) == "x" * (MAX_JSON_BYTES - 2)
    assert at_path(b" " + longest, ()) is MISSING
    assert repr(MISSING) == "missing"


def test_decoded_payloads_are_kept_up_to_a_limit() -> None:
    first = b'{"n": 0}'
    kept = decoded(first)
    assert decoded(b'{"n": 0}') is kept
    for number in range(1 + KEPT_BYTES // 1_000):
        decoded(b'{"n": %d, "x": "%s"}' % (number, b"x" * 1_000))
    assert decoded(b'{"n": 0}') is not kept


# ── filters ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_expression_is_the_same_filter_while_it_is_in_use() -> None:
    filters = Filters()
    first = filters.compile("qos = 1")
    assert filters.compile("qos = 1") is first
    assert repr(first) == "Filter('qos = 1')"
    assert filters.compile("qos = x") == (
        'filter: position 7: found x, and expected a value (text is in quotes); such as "us", 42 or true'
    )


@pytest.mark.parametrize(
    ("expression", "reads_payload"),
    [("attributes:a", False), ("NOT (topic = 'a' OR (qos = 1 AND payload > 1))", True), ("payload:a", True)],
)
def test_a_filter_knows_whether_it_looks_into_payloads(expression: str, reads_payload: bool) -> None:
    assert Filter(expression).reads_payload is reads_payload


def test_an_explanation_has_each_part_with_what_was_found() -> None:
    compiled = Filter("(payload.total > 1000 OR NOT topic: 'a') AND attributes.country = 'US' AND attributes:x")
    told = compiled.explain(
        Fields(
            b"a/b", b'{"total": 7}', properties=Properties(user_properties=[("country", "DE"), ("x", "1"), ("x", "2")])
        )
    )
    assert told == Evaluated(
        compiled.expression,
        False,
        parts=(
            Evaluated(
                "payload.total > 1000 OR NOT topic: 'a'",
                False,
                parts=(
                    Evaluated("payload.total > 1000", False, 7),
                    Evaluated("NOT topic: 'a'", False, parts=(Evaluated("topic: 'a'", True, "a/b"),)),
                ),
            ),
            Evaluated("attributes.country = 'US'", False, "DE"),
            Evaluated("attributes:x", True, ["1", "2"]),
        ),
    )
    assert Filter("qos = 1").explain(Fields(qos=1)).found == 1
    assert Filter("retain = true").explain(Fields()).found is False
