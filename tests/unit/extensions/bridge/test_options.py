"""The section `[[bridges]]`: what it may say, and how it is refused."""

from typing import Any

import pytest

from mqttlite.config import ConfigError
from mqttlite.config.file import parse_config
from mqttlite.extensions.bridge.options import (
    MAX_ADDRESSES,
    MAX_TOPICS,
    BridgeOptions,
    BridgeTopic,
    Endpoint,
    parse_address,
)
from tests.support.table import over

GOOD: dict[str, Any] = {"name": "b", "addresses": ["b.example"], "topics": [{"pattern": "#"}]}

HOT: dict[str, Any] = {"pattern": "a", "filter": "payload > 1"}


def parse(**changes: Any) -> BridgeOptions:
    return parse_config({"bridges": [{**GOOD, **changes}]}).bridges[0]


@pytest.mark.long
@over(
    [
        ("a name", {"name": "a/b"}, "letters, digits"),
        ("no address", {"addresses": []}, "addresses has 0 entries"),
        ("many addresses", {"addresses": ["a"] * (MAX_ADDRESSES + 1)}, "addresses has 17 entries"),
        ("an URL", {"addresses": ["mqtt://a"]}, "host:port is meant"),
        ("a path without a scheme", {"addresses": ["a:1/mqtt"]}, "host:port is meant"),
        ("a space in a path", {"addresses": ["ws://a/m q"]}, "the URL of a WebSocket"),
        ("ws:// and TLS", {"addresses": ["ws://a"], "tls": True}, "begins with wss://"),
        ("a wrong filter", {"topics": [{"pattern": "a", "filter": "payload >"}]}, "filter: "),
        ("two filters out", {"topics": [HOT, {**HOT, "filter": "payload < 1", "remote_prefix": "c/"}]}, "a OR b"),
        ("two filters in", {"topics": [{**HOT, "direction": "in"}, {"pattern": "a", "direction": "both"}]}, "a OR b"),
        ("a filter and none", {"topics": [HOT, {"pattern": "a"}]}, "'a' in direction out twice with different filters"),
        ("the name .", {"name": "."}, "is not . or .."),
        ("the name ..", {"name": ".."}, "is not . or .."),
        ("no host name", {"addresses": ["a..b:1883"]}, "no host name"),
        ("a long label", {"addresses": ["a" * 64 + ".example"]}, "no host name"),
        ("a long user name", {"username": "u" * 65_536}, "username is too long"),
        ("a long client id", {"client_id": "c" * 65_536}, "client_id is too long"),
        ("a long password", {"username": "u", "password": "p" * 65_536}, "password is too long"),
        ("port 0", {"addresses": ["a:0"]}, "host:port is meant"),
        ("no topic", {"topics": []}, "topics has 0 entries"),
        ("many topics", {"topics": [{"pattern": "a"}] * (MAX_TOPICS + 1)}, "topics has 1001 entries"),
        ("an empty topic", {"topics": [{"pattern": "", "local_prefix": "a"}]}, "pattern and remote_prefix are empty"),
        ("a wrong pattern", {"topics": [{"pattern": "a/#/b"}]}, "pattern: "),
        ("a wildcard in a prefix", {"topics": [{"pattern": "a", "local_prefix": "+/"}]}, "wildcards are for pattern"),
        ("a shared subscription", {"topics": [{"pattern": "$share/g/a"}]}, "shared subscription"),
        ("a queue", {"topics": [{"pattern": "$queue/a"}]}, "only $SYS can go out"),
        ("$SYS that comes in", {"topics": [{"pattern": "$SYS/#", "direction": "in"}]}, "only $SYS can go out"),
        ("a lazy bridge in", {"start": "lazy", "topics": [{"pattern": "a", "direction": "in"}]}, "never connect"),
        ("a password alone", {"version": "3.1.1", "password": "x"}, "password needs a username"),
        ("a window of 0", {"window": 0}, "window is 0: it may be 1 to 60000"),
        ("a window of 60001", {"window": 60_001}, "window is 60001"),
        ("no keep-alive", {"keep_alive_s": 0}, "keep_alive_s is 0"),
        ("no hops", {"max_hops": 0}, "max_hops is 0"),
        ("a negative rate", {"max_rate_per_s": -1.0}, "max_rate_per_s is -1"),
        ("a short delay", {"max_delay_s": 0.1}, "max_delay_s is 0.1"),
    ]
)
def test_a_wrong_option_is_named(what: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**changes)
    assert said in str(caught.value)


def test_two_bridges_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="bridges has 'b' twice"):
        parse_config({"bridges": [GOOD, GOOD]})


def test_limits_are_as_they_are_said() -> None:
    found = parse(window=60_000, addresses=["a"] * MAX_ADDRESSES, topics=[{"pattern": "a"}] * MAX_TOPICS)
    assert (found.window, len(found.topics)) == (60_000, MAX_TOPICS)
    assert parse(topics=[{"pattern": "$SYS/#"}]).topics == (BridgeTopic(pattern="$SYS/#"),)


def test_one_pattern_may_have_another_filter_in_the_other_direction() -> None:
    found = parse(topics=[HOT, {"pattern": "a", "direction": "in"}, HOT])
    assert [each.filter for each in found.topics] == ["payload > 1", "", "payload > 1"]


@over(
    [
        ("a", False, Endpoint("a", 1883, False, "")),
        ("192.0.2.1:1", False, Endpoint("192.0.2.1", 1, False, "")),
        ("[::1]", True, Endpoint("::1", 8883, True, "")),
        ("ws://a", False, Endpoint("a", 80, False, "/")),
        ("ws://[::1]:8083/mqtt?a=b", False, Endpoint("::1", 8083, False, "/mqtt?a=b")),
        ("wss://a/mqtt", False, Endpoint("a", 443, True, "/mqtt")),
    ]
)
def test_an_address_has_a_default_port(address: str, is_tls: bool, endpoint: Endpoint) -> None:
    assert parse_address(address, is_tls) == endpoint


def test_an_endpoint_shows_no_query_for_it_may_be_a_secret() -> None:
    assert str(Endpoint("a", 443, True, "/mqtt?token=x")) == "wss://a:443/mqtt?…"
    assert str(Endpoint("a", 443, True, "/mqtt")) == "wss://a:443/mqtt"
