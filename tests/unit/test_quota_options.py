"""The options of quotas, and the buckets that they make."""

import pytest

from mqttlite.config import ConfigError
from mqttlite.config.connects import ConnectOptions
from mqttlite.config.file import parse_config
from mqttlite.config.quotas import BrokerQuotas, QuotaOptions


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("messages_per_s", -1, "quotas.messages_per_s is -1: 0.001 at least, and finite, or 0 for no limit"),
        ("bytes_per_s", float("inf"), "quotas.bytes_per_s is inf"),
        ("user_bytes_per_s", float("nan"), "quotas.user_bytes_per_s is nan"),
        ("user_payload_bytes", {"ann": 0}, "user_payload_bytes has 0 for 'ann': a name, and 1 at least"),
        ("burst_s", 0, "quotas.burst_s is 0: 0.001 at least, and finite"),
        ("on_rate", "explode", "quotas.on_rate"),
    ],
)
def test_a_quota_that_is_none_is_refused(option: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"quotas": {option: value}})
    assert words in str(caught.value)


def test_without_quotas_a_listener_has_no_buckets() -> None:
    assert BrokerQuotas(QuotaOptions(), 0.0).of_listener(None) is None


def test_listeners_without_options_share_the_buckets_and_others_share_those_of_the_broker() -> None:
    quotas = BrokerQuotas(QuotaOptions(messages_per_s=5, all_messages_per_s=50, on_rate="disconnect"), 0.0)
    one, other = quotas.of_listener(None), quotas.of_listener(None)
    assert one is not None
    assert other is not None
    assert one.clients is other.clients is not None
    assert (one.listener, one.users, one.to_clients, one.disconnects) == (None, None, None, True)
    own = quotas.of_listener(QuotaOptions(user_bytes_per_s=7, all_bytes_per_s=9))
    assert own is not None
    assert (own.clients, own.to_clients, own.disconnects) == (None, None, False)
    assert own.users is not None
    assert own.listener is not None
    assert own.broker is one.broker is not None


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


def test_payloads_of_users_and_rates_of_addresses_are_quotas() -> None:
    quotas = BrokerQuotas(QuotaOptions(user_payload_bytes={"meter": 7}), 0.0).of_listener(None)
    assert quotas is not None
    assert (quotas.payloads, quotas.addresses) == ({"meter": 7}, None)
    quotas = BrokerQuotas(QuotaOptions(), 0.0).of_listener(QuotaOptions(address_bytes_per_s=5))
    assert quotas is not None
    assert (quotas.payloads, quotas.addresses is None) == ({}, False)
