"""Whom an address stands for."""

import pytest

from mqttlite.net.address_key import address_key


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7:4711", "192.0.2.7"),
        ("[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:1", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:1", "fe80::/64"),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7"),
        ("unix", ""),
        ("/run/mqttlite.sock", ""),
        ("?", ""),
    ],
)
def test_an_ipv6_network_counts_as_one_address_and_a_path_as_none(address: str, key: str) -> None:
    assert address_key(address) == key
