"""Names under a key: the same stay the same, and nothing else can be told."""

import hashlib
import hmac
import os
import stat
from pathlib import Path

import pytest

from mqttlite.extensions.dataset.options import TelemetryError, TelemetryOptions
from mqttlite.extensions.dataset.pseudonyms import MAX_CACHED, MIN_KEY_BYTES, Pseudonyms, pseudonyms_of

KEY = b"k" * 32
ALL = Pseudonyms(("client_ids", "usernames", "addresses", "topics"), KEY)


def digest(text: str) -> str:
    return hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()[:16]


def test_names_that_are_not_to_be_hidden_are_left_as_they_are() -> None:
    nobody = Pseudonyms()
    assert nobody.client_id("c") == nobody.username("c") == nobody.topic("c") == "c"
    assert nobody.address("10.0.0.1:5000") == "10.0.0.1:5000"
    assert nobody.sentence("not to 'x'") == "not to 'x'"
    assert nobody.quotation("bye") == "bye"
    some = Pseudonyms(("usernames",), KEY)
    assert (some.client_id("c"), some.topic("a/b"), some.address("h:1")) == ("c", "a/b", "h:1")
    assert some.username("c") == f"u-{digest('u-c')}"


def test_a_pseudonym_has_its_kind_and_is_an_hmac_of_kind_and_value() -> None:
    assert ALL.client_id("zoë") == f"c-{digest('c-zoë')}"
    assert ALL.username("zoë") == f"u-{digest('u-zoë')}"
    assert ALL.address("10.0.0.1:5000") == f"a-{digest('a-10.0.0.1')}"
    assert ALL.topic("zoë") == f"t-{digest('t-zoë')}"


def test_a_client_without_a_name_has_no_pseudonym() -> None:
    assert ALL.username(None) is None
    assert ALL.client_id(None) is None


def test_other_nodes_keep_their_names_and_no_client_does() -> None:
    names = Pseudonyms(("client_ids",), KEY, {"b"}.__contains__)
    assert names.client_id("$node/b") == "$node/b"
    assert names.client_id("$node/b/zoë/1") == f"$node/b/c-{digest('c-zoë/1')}", "the pseudonym that it has at b"
    for other in ("node/b", "$node/zoë", "$node/zoë/b", "$node/"):
        assert names.client_id(other) == f"c-{digest('c-' + other)}"
    assert ALL.client_id("$node/b") == f"c-{digest('c-$node/b')}", "at a broker alone it is any client"


def test_an_address_has_the_same_pseudonym_whatever_its_port() -> None:
    assert ALL.address("10.0.0.1:5000") == ALL.address("10.0.0.1:6000") != ALL.address("10.0.0.2:5000")
    assert ALL.address("[::1]:5000") == ALL.address("[::1]:6000") != ALL.address("[::2]:5000")
    assert ALL.address("/run/broker.sock") == f"a-{digest('a-/run/broker.sock')}"


@pytest.mark.parametrize(
    ("topic", "hidden"),
    [
        ("a/b/a", "A/B/A"),
        ("a/+/#", "A/+/#"),
        ("#", "#"),
        ("/a//b/", "/A//B/"),
        ("$SYS/a", "$SYS/A"),
        ("$share/a/b/#", "$share/A/B/#"),
        ("a/$b", "A/$B"),
    ],
)
def test_each_level_of_a_topic_is_hidden_except_those_of_the_standard(topic: str, hidden: str) -> None:
    names = {"A": "a", "B": "b", "$B": "$b"}
    expected = [f"t-{digest('t-' + names[level])}" if level in names else level for level in hidden.split("/")]
    assert ALL.topic(topic).split("/") == expected


@pytest.mark.parametrize(
    ("sentence", "left"),
    [
        ("silent for 15.0 s", "silent for 15.0 s"),
        ("topic name 'plant/1' contains a wildcard", "topic name … contains a wildcard"),
        ("""'#' in "it's/a" is not 'whole' \n""", "… \n"),
        (
            """method 'a
        b' is unknown""",
            "method … is unknown",
        ),
    ],
)
def test_a_sentence_loses_its_quotations(sentence: str, left: str) -> None:
    assert ALL.sentence(sentence) == left


def test_the_words_of_a_client_are_removed() -> None:
    assert ALL.quotation("I am zoë") == ""


def test_no_more_pseudonyms_are_kept_than_the_limit_says() -> None:
    names = Pseudonyms(("client_ids",), KEY)
    for number in range(MAX_CACHED + 1):
        names.client_id(str(number))
    assert names._client_id.cache_info().currsize == MAX_CACHED  # type: ignore[attr-defined]


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def options(path: Path) -> TelemetryOptions:
    return TelemetryOptions(directory="d", pseudonymise=("client_ids",), pseudonym_key_file=str(path))


def test_a_key_that_is_not_there_is_made_for_its_owner_alone_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = pseudonyms_of(options(path)).client_id("c")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes().strip()) == 64
    assert pseudonyms_of(options(path)).client_id("c") == first != "c"
    assert pseudonyms_of(options(tmp_path / "other")).client_id("c") != first
    assert sorted(os.listdir(tmp_path)) == ["key", "other"]


@pytest.mark.parametrize(("size", "accepted"), [(0, False), (MIN_KEY_BYTES - 1, False), (MIN_KEY_BYTES, True)])
def test_a_short_key_is_refused_by_its_path(tmp_path: Path, size: int, accepted: bool) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"k" * size + b"\n")
    if accepted:
        assert pseudonyms_of(options(path)).client_id("zoë") == ALL.client_id("zoë")
    else:
        with pytest.raises(TelemetryError, match=f"{path}: a key of {size} bytes is too short") as caught:
            pseudonyms_of(options(path))
        assert caught.value.option == "pseudonym_key_file"


def test_a_key_that_cannot_be_read_or_made_is_refused_by_its_path(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere" / "key"):
        with pytest.raises(TelemetryError, match=f"{path}: cannot be read or made"):
            pseudonyms_of(options(path))


def test_pseudonyms_without_a_key_file_are_refused() -> None:
    with pytest.raises(ValueError, match="pseudonymise needs pseudonym_key_file"):
        TelemetryOptions(directory="d", pseudonymise=("topics",))
    assert pseudonyms_of(TelemetryOptions(directory="d")).client_id("c") == "c"
