"""Limits that contradict each other, or the standard, are refused in a sentence that says which and why."""

import dataclasses
import re

import pytest

from mqttlite.core.connect.connect import acceptance
from mqttlite.core.connect.connection import Connection, Peer
from mqttlite.core.effects import Effects
from mqttlite.core.limits import OVERFLOW_POLICIES, Limits
from mqttlite.wire.packets import Connect
from mqttlite.wire.properties import Properties

LEAST = {
    "max_packet_bytes": 128,
    "receive_maximum": 1,
    "topic_alias_maximum": 0,
    "max_inflight": 1,
    "max_queued_messages": 0,
    "max_queued_bytes": 0,
    "max_outbox_bytes": 1_024,
    "max_outbox_messages": 1,
    "max_subscriptions": 1,
    "max_shared_subscriptions": 0,
    "max_filtered_subscriptions": 0,
    "max_sessions": 1,
    "max_retained_messages": 0,
    "max_retained_bytes": 0,
    "max_delayed_messages": 0,
    "max_delayed_bytes": 0,
    "max_route_cache_bytes": 0,
    "server_keep_alive_s": 0,
    "max_session_expiry_s": 0,
}
MOST = {
    "max_packet_bytes": 268_435_460,
    "receive_maximum": 65_535,
    "topic_alias_maximum": 65_535,
    "server_keep_alive_s": 65_535,
    "max_session_expiry_s": 0xFFFF_FFFF,
}


@pytest.mark.parametrize("name", LEAST)
def test_a_limit_may_be_its_least_and_not_less(name: str) -> None:
    assert getattr(Limits(**{name: LEAST[name]}), name) == LEAST[name]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"^{name} is {LEAST[name] - 1}: {LEAST[name]} at least$"):
        Limits(**{name: LEAST[name] - 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MOST)
def test_a_limit_may_be_its_most_and_not_more(name: str) -> None:
    assert getattr(Limits(**{name: MOST[name]}), name) == MOST[name]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"^{name} is {MOST[name] + 1}: {MOST[name]} at most$"):
        Limits(**{name: MOST[name] + 1})  # type: ignore[arg-type]


def test_a_client_has_some_time_to_connect() -> None:
    with pytest.raises(ValueError, match=r"connect_timeout_s is 0: 0\.001 at least"):
        Limits(connect_timeout_s=0)


def test_only_the_three_policies_exist() -> None:
    for policy in OVERFLOW_POLICIES:
        assert Limits(on_overflow=policy).on_overflow == policy
    with pytest.raises(
        ValueError, match=re.escape("on_overflow is 'cry': it may be drop_newest, drop_oldest, disconn")
    ):
        Limits(on_overflow="cry")


@pytest.mark.parametrize("extreme", [LEAST, MOST])
def test_each_accepted_limit_fits_a_connack(extreme: dict[str, int]) -> None:
    limits = dataclasses.replace(Limits(), **extreme)  # type: ignore[arg-type]
    connection = Connection(1, Peer(), Effects(), limits, 0.0)
    connection.session_expiry_s = limits.max_session_expiry_s
    connection.keep_alive_s = limits.server_keep_alive_s
    packet = Connect("c", keep_alive=7, properties=Properties(session_expiry_interval=8))
    assert acceptance(connection, packet, limits)
