"""What a request is made of, what its response means, and how many may be open."""

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from mqttlite.core.message import Message
from mqttlite.extensions.push.envelope import content_type, wrapped
from mqttlite.extensions.push.results import MAX_RETRY_AFTER_S, parse_retry_after, response
from mqttlite.extensions.push.signature import ID, SIGNATURE, TIMESTAMP, keys_of, signatures, webhook_id
from mqttlite.extensions.push.window import JITTER, LONGEST_HOLD_S, Window
from mqttlite.extensions.queues.push_target import PushTarget, new_secret
from mqttlite.wire.properties import Properties

NOW = datetime(2026, 11, 24, 12, 0, 0, tzinfo=UTC)


def message(payload: bytes = b"x", **properties: object) -> Message:
    made = Message(b"a/b", payload, 1, False, Properties(**properties))  # type: ignore[arg-type]
    made.number = 1_795_524_036_702_446
    return made


def test_a_body_is_googles() -> None:
    pairs = [("country", "US"), ("country", "DE"), ("ordering-key", "k")]
    found = json.loads(wrapped(message(b"two apples", user_properties=pairs), "projects/shop/subscriptions/mail", 3))
    assert found == {
        "message": {
            "data": base64.b64encode(b"two apples").decode(),
            "attributes": {"country": "US"},
            "messageId": "1795524036702446",
            "message_id": "1795524036702446",
            "publishTime": "2026-11-24T12:40:36.702446Z",
            "publish_time": "2026-11-24T12:40:36.702446Z",
            "orderingKey": "k",
        },
        "subscription": "projects/shop/subscriptions/mail",
        "deliveryAttempt": 3,
    }


def test_the_type_of_a_bare_payload_is_what_the_publisher_says_if_a_header_can_have_it() -> None:
    assert content_type(message(content_type="image/png")) == "image/png"
    assert content_type(message(content_type="a\r\nb: c")) == "application/octet-stream"
    assert content_type(message(content_type="ä")) == "application/octet-stream"
    assert content_type(message(payload_format_indicator=1)) == "text/plain; charset=utf-8"


def test_a_signature_is_verified_by_either_secret_and_by_no_other() -> None:
    new, old = new_secret(), new_secret()
    body = wrapped(message(), "$queue/q", 1)
    now = int(datetime.now(UTC).timestamp())
    made = signatures(keys_of(PushTarget(url="https://h.example", secret=new, previous_secret=old)), "msg_1", now, body)
    headers = {ID: "msg_1", TIMESTAMP: str(now), SIGNATURE: made}
    for secret in (new, old):
        Webhook(secret).verify(body, headers)
    assert made.split()[0] == Webhook(new).sign("msg_1", datetime.fromtimestamp(now, UTC), body.decode())
    for wrong in ({ID: "msg_2"}, {TIMESTAMP: str(now - 1)}):
        with pytest.raises(WebhookVerificationError):
            Webhook(new).verify(body, headers | wrong)
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(body + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(body, headers)


def test_an_id_is_that_of_a_message_of_a_queue() -> None:
    assert webhook_id("q", 7) == webhook_id("q", 7)
    assert len({webhook_id("q", 7), webhook_id("q", 8), webhook_id("r", 7)}) == 3
    assert "." not in webhook_id("a.b", 7)


STATUSES = {200: "2xx", 204: "2xx", 299: "2xx", 301: "3xx", 410: "4xx", 503: "5xx", 102: "failed", 999: "failed"}


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
def test_a_status_counts_by_its_class_and_2xx_alone_succeeds(status: int, kind: str) -> None:
    found = response(status, None)
    assert (found.kind, found.is_success) == (kind, kind == "2xx")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("Tue, 24 Nov 2026 12:01:00 GMT", 60.0),
        ("Tuesday, 24-Nov-26 12:00:30 GMT", 30.0),
        ("Tue, 24 Nov 2026 11:00:00 GMT", 0.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        ("Tue, 99 Nov 99999 99:99:99 GMT", 0.0),
        ("²", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float) -> None:
    assert parse_retry_after(text, NOW) == seconds


@pytest.mark.long
@given(st.text(max_size=60))
def test_any_retry_after_is_a_number_of_seconds(text: str) -> None:
    assert 0.0 <= response(503, text, NOW).retry_after_s <= MAX_RETRY_AFTER_S


def test_retry_after_counts_with_the_statuses_that_say_so() -> None:
    assert [response(status, "9", NOW).retry_after_s for status in (429, 503, 500, 200)] == [9.0, 9.0, 0.0, 0.0]
    assert response(429, "9" * 20, NOW).retry_after_s == MAX_RETRY_AFTER_S


def test_a_window_doubles_with_each_round_and_grows_slowly_after_a_failure() -> None:
    window = Window(64, lambda: 0.0)
    sizes = []
    for _ in range(5):
        sizes.append(window.size)
        for _ in range(window.size):
            window.on_success(window.size)
    assert sizes == [1, 2, 4, 8, 16]
    window.on_failure(window.round, 0.0)
    assert (window.size, window.held_until) == (16, 0.0)
    for _ in range(17):
        window.on_success(window.size)
    assert window.size == 17


def test_failures_of_one_round_count_as_one() -> None:
    window = Window(64, lambda: 0.0)
    for _ in range(63):
        window.on_success(64)
    assert window.size == 64
    began_in = window.round
    for _ in range(64):
        window.on_failure(began_in, 0.0)
    assert window.size == 32


def test_an_endpoint_that_fails_alone_is_left_alone_for_longer_and_longer() -> None:
    window = Window(8, lambda: 1.0)
    held = []
    for _ in range(14):
        window.on_failure(window.round, window.held_until)
        before = sum(held)
        held.append(window.held_until - before)
    assert held[:3] == [pytest.approx(0.11), pytest.approx(0.22), pytest.approx(0.44)]
    assert held[-1] == pytest.approx(LONGEST_HOLD_S * (1 + JITTER))
    assert window.is_failing
    window.on_success(1)
    assert not window.is_failing


def test_a_window_that_nobody_fills_does_not_grow() -> None:
    window = Window(64, lambda: 0.0)
    for _ in range(1_000):
        window.on_success(2)
    assert window.size == 5


@given(st.lists(st.booleans(), max_size=300), st.integers(1, 20))
def test_a_window_is_never_less_than_one_or_more_than_its_limit(results: list[bool], most: int) -> None:
    window = Window(most, lambda: 0.5)
    for number, good in enumerate(results):
        if good:
            window.on_success(window.size)
        else:
            window.on_failure(window.round, float(number))
        assert 1 <= window.size <= most
