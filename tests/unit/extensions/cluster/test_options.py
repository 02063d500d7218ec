"""The section `cluster`: what is wrong with it is said with what would be right."""

from typing import Any

import pytest

from mqttlite.config import ConfigError
from mqttlite.config.file import parse_config
from mqttlite.engine.addresses import default_node
from mqttlite.engine.port import check_key
from mqttlite.extensions.cluster import keys

SERVERS = ["nats://a:4222", "nats://b:4222", "nats://c:4222"]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"servers": []}, r"servers has 0 addresses: name 1 to 16"),
        ({"servers": ["a:4222"]}, r"servers has 'a:4222': write it like \"nats://10\.0\.0\.1:4222\""),
        ({"servers": ["http://a"]}, r"servers has 'http://a'"),
        ({"servers": ["nats://a:70000"]}, r"servers has 'nats://a:70000': write it like .*a port from 1 to 65535"),
        ({"servers": ["nats://a:0"]}, r"servers has 'nats://a:0'"),
        ({"servers": ["nats://a:port"]}, r"servers has 'nats://a:port'"),
        ({"servers": ["nats://[::1"]}, r"servers has 'nats://\[::1'.*an IPv6 address in brackets"),
        ({"servers": ["nats://::1:4222"]}, r"servers has 'nats://::1:4222'"),
        ({"servers": ["nats://u:secret@[::1"]}, r"servers has 'nats://\[::1': write"),
        ({"servers": ["http://u:p/secret@a"]}, r"servers has 'http://a': write"),
        ({"monitoring": ["http://a:x"]}, r"monitoring has 'http://a:x': write it like \"http://10\.0\.0\.1:8222\""),
        ({"monitoring": ["a:8222"]}, r"monitoring has 'a:8222'"),
        (
            {"engine": {"address": "nats://u:secret@d:4222", "secret": "x" * 16}},
            r"engine\.address is 'nats://d:4222', which is none",
        ),
        ({"name": "my cluster"}, r"name is 'my cluster': use 1 to 64 letters"),
        ({"name": ""}, r"name is empty"),
        ({"node": "a.b"}, r"node is 'a\.b'"),
        ({"log_bytes": 1_000}, r"log_bytes is 1000: at least 67108864"),
        ({"password": "x"}, r"password is set without the name"),
        ({"system_password": "x"}, r"system_password is set without the name"),
        (
            {"engine": {"address": "nats://d:4222", "secret": "x" * 16}},
            r"engine\.address is 'nats://d:4222', which is none",
        ),
        ({"engine": {"address": "nats://a:4222", "secret": "short"}}, r"secret has 5 characters: 16 at least"),
        (
            {"engine": {"address": "nats://a:4222", "secret": "x" * 16, "ca_file": "a"}},
            r"TLS needs ca_file, cert_file and key_file",
        ),
    ],
)
def test_a_wrong_option_is_named(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_config({"data_dir": "x", "cluster": {"servers": SERVERS, **section}})


def test_a_machine_with_an_engine_of_its_own_is_read() -> None:
    engine = {"address": SERVERS[1], "secret": "x" * 16}
    options = parse_config({"data_dir": "x", "cluster": {"servers": SERVERS, "engine": engine}}).cluster
    assert options is not None
    assert options.engine is not None
    assert (options.servers, options.engine.address) == (tuple(SERVERS), SERVERS[1])


@pytest.mark.parametrize(
    ("host", "name"), [("a1", "a1"), ("a.example.com", "a-example-com"), ("büro 1", "b-ro-1"), ("", "-"), (".", "-")]
)
def test_a_host_name_makes_a_name_that_a_key_can_have(host: str, name: str) -> None:
    assert default_node(host) == name
    check_key(keys.NODES + name)


def test_ipv6_addresses_in_brackets_are_taken() -> None:
    parse_config({"data_dir": "x", "cluster": {"servers": ["nats://[::1]:4222"], "monitoring": ["http://[::1]:8222"]}})
