"""The generated configuration of a server, and how its log lines become ours."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from mqttlite.engine.port import EngineUnfit
from mqttlite.extensions.cluster.engine_child import (
    EngineChildOptions,
    EngineTls,
    configuration_of,
    find_server,
    login_of,
    pass_on,
    system_login_of,
)

OPTIONS = EngineChildOptions(
    ("nats://a", "nats://b:4300", "nats://[::1]:4222"), "nats://b:4300", "c", Path("/data/engine"), "0123456789abcdef"
)


def test_a_server_listens_at_its_own_address_and_knows_the_routes_of_all() -> None:
    found = configuration_of(OPTIONS)
    cluster = found["cluster"]
    assert isinstance(cluster, dict)
    password = cluster["authorization"]["password"]
    assert (found["server_name"], found["listen"], cluster["listen"]) == ("b-4300", "b:4300", "b:6300")
    assert cluster["routes"] == [f"nats-route://route:{password}@{each}" for each in ("a:6222", "b:6300", "[::1]:6222")]


def test_a_server_syncs_always() -> None:
    assert configuration_of(OPTIONS)["jetstream"] == {"store_dir": "/data/engine/store", "sync_interval": "always"}


def test_each_role_has_a_password_of_its_own_that_is_not_the_secret() -> None:
    cluster = configuration_of(OPTIONS)["cluster"]
    assert isinstance(cluster, dict)
    passwords = {
        login_of(OPTIONS.secret).password,
        system_login_of(OPTIONS.secret).password,
        cluster["authorization"]["password"],
        login_of("another secret of ours").password,
    }
    assert len(passwords) == 4
    assert OPTIONS.secret not in str(configuration_of(OPTIONS))


def test_tls_is_for_clients_and_routes() -> None:
    found = configuration_of(replace(OPTIONS, tls=EngineTls(Path("/c.pem"), Path("/k.pem"), Path("/ca.pem"))))
    files = {"cert_file": "/c.pem", "key_file": "/k.pem", "ca_file": "/ca.pem"}
    assert found["tls"] == files
    assert isinstance(found["cluster"], dict)
    assert found["cluster"]["tls"] == files


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (replace(OPTIONS, own="nats://d"), "nats://d is none of the engine's servers"),
        (replace(OPTIONS, secret="0123456789abcde"), "fewer than 16 characters: make one by"),
        (replace(OPTIONS, servers=("nats://b:4300", "nats://")), "is no address of a NATS server"),
    ],
)
def test_a_wrong_configuration_is_refused(options: EngineChildOptions, says: str) -> None:
    with pytest.raises(EngineUnfit, match=says):
        configuration_of(options)


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        (b"[12] [INF] Server is ready\n", logging.INFO, "Server is ready"),
        (b"[12] [WRN] slow\n", logging.WARNING, "slow"),
        (b"[12] [ERR] \xff\n", logging.ERROR, "\N{REPLACEMENT CHARACTER}"),
        (b"[12] [FTL] gone\n", logging.CRITICAL, "gone"),
        (b"[12] [DBG] more\n", logging.DEBUG, "more"),
        (b"nats-server: bad.conf:1\n", logging.INFO, "nats-server: bad.conf:1"),
    ],
)
def test_a_line_of_the_server_keeps_its_level(
    line: bytes, level: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "mqttlite.engine"):
        pass_on(line)
    assert caplog.record_tuples == [("mqttlite.engine", level, text)]


def test_a_server_on_path_comes_first(tmp_path: Path) -> None:
    made = tmp_path / "nats-server"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    assert find_server({"PATH": str(tmp_path)}) == made
    assert find_server({"PATH": ""}) != made
