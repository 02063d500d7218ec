"""The options of quotas, and the buckets that they make."""

import pytest

from mqttlite.config import ConfigError
from mqttlite.config.connects import ConnectOptions
from mqttlite.config.file import parse_config
from mqttlite.config.quotas import BrokerQuotas, QuotaOptions
from mqttlite.core.load.quotas import Quotas


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("messages_per_s", -1, "quotas.messages_per_s is -1: 0.001 at least, and finite, or 0 for no limit"),
        ("bytes_per_s", float("inf"), "quotas.bytes_per_s is inf"),
        ("user_bytes_per_s", float("nan"), "quotas.user_bytes_per_s is nan"),
        ("user_payload_bytes", {"ann": 0}, "user_payload_bytes has 0 for 'ann': a name, and 1 at least"),
        ("user_topic_levels", {"": 3}, "user_topic_levels has 3 for '': a name, and 1 at least"),
        ("to_user_messages_per_s", 0.0001, "quotas.to_user_messages_per_s is 0.0001: 0.001 at least"),
        ("user_subscriptions", -1, "quotas.user_subscriptions is -1: 1 at least, or 0 for no limit"),
        ("all_queued_bytes", 100, "quotas.all_queued_bytes is 100: 1024 at least, or 0 for no limit"),
        ("burst_s", 0, "quotas.burst_s is 0: 0.001 at least, and finite"),
        ("on_rate", "explode", "quotas.on_rate"),
    ],
)
def test_a_quota_that_is_none_is_refused(option: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"quotas": {option: value}})
    assert words in str(caught.value)


def quotas_of(common: QuotaOptions, own: QuotaOptions | None = None) -> Quotas:
    quotas = BrokerQuotas(common, 0.0, {}).of_listener(own)
    assert quotas is not None
    return quotas


def test_without_quotas_a_listener_has_no_buckets() -> None:
    assert BrokerQuotas(QuotaOptions(), 0.0, {}).of_listener(None) is None
    assert BrokerQuotas(QuotaOptions(burst_s=5, on_rate="disconnect"), 0.0, {}).of_listener(None) is None


def test_listeners_without_options_share_the_buckets_and_others_share_those_of_the_broker() -> None:
    options = QuotaOptions(messages_per_s=5, all_messages_per_s=50, to_all_bytes_per_s=9, on_rate="disconnect")
    quotas = BrokerQuotas(options, 0.0, {})
    one, other = quotas.of_listener(None), quotas.of_listener(None)
    assert one is not None
    assert other is not None
    assert one.incoming.clients is other.incoming.clients is not None
    assert one.held is not other.held
    assert (one.incoming.listener, one.incoming.users, one.outgoing.clients, one.disconnects) == (
        None,
        None,
        None,
        True,
    )
    own = quotas.of_listener(QuotaOptions(user_bytes_per_s=7, all_bytes_per_s=9))
    assert own is not None
    assert (own.incoming.clients, own.outgoing.listener, own.disconnects) == (None, None, False)
    assert own.incoming.users is not None
    assert own.incoming.listener is not None
    assert own.incoming.broker is one.incoming.broker is not None
    assert own.outgoing.broker is one.outgoing.broker is not None


def test_listeners_share_the_groups_of_the_broker_too() -> None:
    quotas = BrokerQuotas(QuotaOptions(user_subscriptions=5, all_queued_bytes=5_000), 0.0, {})
    one, own = quotas.of_listener(None), quotas.of_listener(QuotaOptions(address_subscriptions=9, all_subscriptions=7))
    assert one is not None
    assert own is not None
    assert (one.usages.users is None, one.usages.listener, own.usages.users) == (False, None, None)
    assert own.usages.broker is one.usages.broker is not None
    assert own.usages.listener is not None
    assert (one.wants_address, own.wants_address) == (False, True)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("all_per_s", -1, "connects.all_per_s is -1: 0.001 at least, and finite, or 0 for no limit"),
        ("address_per_s", float("nan"), "connects.address_per_s is nan"),
        ("jail_s", 0, "connects.jail_s is 0: 0.001 at least, and finite"),
        ("max_per_user", -2, "connects.max_per_user is -2: 1 at least, or 0 for no limit"),
    ],
)
def test_a_limit_on_connects_that_is_none_is_refused(option: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"connects": {option: value}})
    assert words in str(caught.value)


def test_without_limits_on_connects_there_are_none() -> None:
    assert ConnectOptions().limits(0.0) is None
    assert ConnectOptions(all_per_s=1, user_per_s=1).limits(0.0) is not None


def test_topics_of_users_and_rates_of_addresses_are_quotas() -> None:
    quotas = quotas_of(QuotaOptions(user_payload_bytes={"meter": 7}, user_topic_levels={"meter": 3, "ann": 4}))
    meter, ann = quotas.topics["meter"], quotas.topics["ann"]
    assert (meter.max_payload_bytes, meter.max_levels, meter.max_bytes) == (7, 3, 65_535)
    assert (ann.max_levels, ann.max_payload_bytes > 1_000_000) == (4, True)
    assert quotas.incoming.addresses is None
    quotas = quotas_of(QuotaOptions(), QuotaOptions(address_bytes_per_s=5))
    assert (quotas.topics, quotas.incoming.addresses is None) == ({}, False)
