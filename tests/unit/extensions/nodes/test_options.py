"""The section `[nodes]`: what it may say, and how it is refused."""

from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import ConfigError
from mqttlite.config.file import parse_config
from mqttlite.extensions.nodes import problems as problems_module
from mqttlite.extensions.nodes.connect import carrier_of
from mqttlite.extensions.nodes.options import NodesOptions
from tests.support.table import over

GOOD: dict[str, Any] = {"servers": ["nats://127.0.0.1:4222"]}


def parse(**changes: Any) -> NodesOptions:
    found = parse_config({"nodes": {**GOOD, **changes}}).nodes
    assert found is not None
    return found


@over(
    [
        ("no server", {"servers": []}, "servers has 0 addresses"),
        ("many servers", {"servers": ["nats://a:1"] * 17}, "servers has 17 addresses"),
        ("a server without a port", {"servers": ["http://secret@a"]}, "servers has 'http://a': write it like"),
        ("an empty name", {"name": ""}, "name is ''"),
        ("a name with a dot", {"name": "a.b"}, "name is 'a.b': use 1 to 64 letters"),
        ("a node with a space", {"node": "a b"}, "node is 'a b': use 1 to 64 letters"),
        ("no time", {"keep_s": 0}, "keep_s is 0: from 1 to"),
        ("for ever", {"keep_s": 0xFFFFFFFF}, "keep_s is 4294967295"),
        ("a password alone", {"password": "p"}, "password is set without the name"),
    ]
)
def test_a_mistake_is_named(what: str, changes: dict[str, Any], said: str) -> None:
    """`what` is wrong."""
    with pytest.raises(ConfigError, match=said.replace("(", "\\(")):
        parse(**changes)


def test_only_the_servers_are_needed() -> None:
    assert parse().keep_s == 86_400
    assert parse(user="u", password="p", node="a", keep_s=1).user == "u"


def test_without_the_client_of_nats_the_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems_module, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="nodes needs the client of NATS"):
        parse()
    parse_config({})


def test_machines_of_a_cluster_need_a_name_for_their_node(tmp_path: Path) -> None:
    raw: dict[str, Any] = {"data_dir": str(tmp_path), "cluster": {"servers": ["nats://127.0.0.1:4222"]}}
    with pytest.raises(ConfigError, match=r"nodes\.node is missing: the machines of a cluster are one node"):
        parse_config({**raw, "nodes": GOOD})
    parse_config({**raw, "nodes": {**GOOD, "node": "a"}})


def test_nodes_do_not_use_the_servers_that_a_cluster_runs_for_itself(tmp_path: Path) -> None:
    servers = [f"nats://127.0.0.1:{port}" for port in (4221, 4222, 4223)]
    engine = {"address": servers[0], "secret": "0123456789abcdef"}
    raw: dict[str, Any] = {"data_dir": str(tmp_path), "cluster": {"servers": servers, "engine": engine}}
    nodes = {"servers": servers[1:2], "node": "a"}
    with pytest.raises(ConfigError, match=r"nodes\.servers names a server that cluster\.engine runs.*all nodes share"):
        parse_config({**raw, "nodes": nodes})
    parse_config({**raw, "nodes": {**nodes, "servers": ["nats://127.0.0.1:5222"]}})
    parse_config({**raw, "cluster": {"servers": servers}, "nodes": nodes})


def test_credentials_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nodes\.credentials_file: .*nothing"):
        carrier_of(parse(credentials_file=str(tmp_path / "nothing")))


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    options = parse(servers=["tls://127.0.0.1:4222"], ca_file=str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="nodes: its certificates cannot be used"):
        carrier_of(options)
