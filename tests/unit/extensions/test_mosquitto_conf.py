"""A mosquitto.conf becomes a configuration of ours, and what does not is said line by line."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mqttlite.cli.main import main
from mqttlite.config import load_config
from mqttlite.config.options import Config, ListenerOptions
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import Limits
from mqttlite.extensions.bridge.options import BridgeOptions, BridgeTls, BridgeTopic
from mqttlite.extensions.mosquitto_import.mosquitto_conf import MAX_FILES, convert
from mqttlite.net.proxy_protocol import ProxyOptions
from mqttlite.net.upgrade import WebSocketOptions
from mqttlite.security.dynamic_security import DynamicSecurityOptions
from mqttlite.security.tls import TlsOptions

EVERY_ADDRESS = ""

OPTIONS_OF_BRIDGES = (
    *("addresses", "topic", "bridge_attempt_unsubscribe", "bridge_bind_address", "bridge_max_packet_size"),
    *("bridge_max_topic_alias", "bridge_outgoing_retain", "bridge_protocol_version", "bridge_receive_maximum"),
    *("bridge_reload_type", "bridge_session_expiry_interval", "bridge_tcp_keepalive", "bridge_tcp_user_timeout"),
    *("cleansession", "clientid", "idle_timeout", "keepalive_interval", "local_cleansession", "local_clientid"),
    *("local_password", "local_username", "notification_topic", "notifications", "notifications_local_only"),
    *("password", "remote_clientid", "remote_password", "remote_username", "restart_timeout", "round_robin"),
    *("start_type", "threshold", "try_private", "username", "bridge_alpn", "bridge_cafile", "bridge_capath"),
    *("bridge_certfile", "bridge_ciphers", "bridge_identity", "bridge_insecure", "bridge_keyfile", "bridge_psk"),
    *("bridge_require_ocsp", "bridge_tls_use_os_certs", "bridge_tls_version"),
)
"""Those that the source of Mosquitto 2.1.2 has (`src/conf.c`)."""


def converted(folder: Path, text: str) -> tuple[Config, list[str]]:
    """The config that a text becomes, and what is left of it, without the name of the file."""
    file, ours = folder / "mosquitto.conf", folder / "broker.toml"
    file.write_text(text)
    result = convert(file)
    ours.write_text(result.toml)
    return load_config(ours), [sentence.removeprefix(f"{file}:") for sentence in result.left]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ListenerOptions()),
        ("# nothing\n\n", ListenerOptions()),
        ("port 1884", ListenerOptions(host=EVERY_ADDRESS, port=1884)),
        ("port 1884\nbind_address 127.0.0.1", ListenerOptions(port=1884)),
        ("listener 1884", ListenerOptions(host=EVERY_ADDRESS, port=1884)),
        ("listener 1884 127.0.0.1", ListenerOptions(port=1884)),
        ("listener 1884\nsocket_domain ipv4", ListenerOptions(host="0.0.0.0", port=1884)),
        ("listener 0 /run/m.sock", ListenerOptions(path="/run/m.sock")),
        ("listener 1 ::1\nprotocol websockets", ListenerOptions(host="::1", port=1, websocket=True)),
        ("listener 1 ::1\nmax_connections 5", ListenerOptions(host="::1", port=1, max_connections=5)),
        (
            "listener 1 ::1\naccept_protocol_versions 5, 4",
            ListenerOptions(host="::1", port=1, capabilities=Capabilities(protocol_versions=("5.0", "3.1.1"))),
        ),
        ("listener 1 ::1\naccept_protocol_versions 3,4,5", ListenerOptions(host="::1", port=1)),
        (
            "listener 1 ::1\nwebsockets_origin https://a.example\nprotocol websockets\nwebsockets_origin https://b.example",
            ListenerOptions(
                host="::1", port=1, websocket=WebSocketOptions(origins=("https://a.example", "https://b.example"))
            ),
        ),
        ("listener 1 ::1\nwebsockets_origin https://a.example", ListenerOptions(host="::1", port=1)),
        ("listener 1 ::1\nmax_connections -1", ListenerOptions(host="::1", port=1)),
        ("listener 1 ::1\nmount_point a/", ListenerOptions(host="::1", port=1, mount_point="a/")),
        (
            "listener 1 ::1\nmax_qos 1\nretain_available false\nallow_zero_length_clientid false",
            ListenerOptions(
                host="::1",
                port=1,
                capabilities=Capabilities(maximum_qos=1, retain_available=False, allow_empty_client_id=False),
            ),
        ),
        (
            "listener 1 ::1\ncertfile c\nkeyfile k\ncafile a\ncrlfile r\nrequire_certificate true\ntls_version tlsv1.3",
            ListenerOptions(
                host="::1",
                port=1,
                tls=TlsOptions(
                    cert_file="c",
                    key_file="k",
                    ca_file="a",
                    crl_file="r",
                    require_client_cert=True,
                    min_version="1.3",
                ),
            ),
        ),
    ],
)
def test_a_listener_is_converted(tmp_path: Path, text: str, expected: ListenerOptions) -> None:
    config, left = converted(tmp_path, text)
    assert (config.listeners, left) == ((expected,), [])


def test_options_before_the_first_listener_make_a_listener_of_their_own(tmp_path: Path) -> None:
    config, _ = converted(tmp_path, "port 1883\nmax_connections 7\nlistener 1884\nlistener 1885 127.0.0.1")
    assert [(each.host, each.port, each.max_connections) for each in config.listeners] == [
        (EVERY_ADDRESS, 1883, 7),
        (EVERY_ADDRESS, 1884, 50_000),
        ("127.0.0.1", 1885, 50_000),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_inflight_messages 20", Config(limits=Limits(max_inflight=20))),
        ("max_inflight_bytes 9000", Config(limits=Limits(max_inflight_bytes=9_000))),
        ("message_size_limit 2000", Config(limits=Limits(max_payload_bytes=2_000))),
        ("message_size_limit 0", Config()),
        ("max_queued_messages 5000", Config(limits=Limits(max_queued_messages=5_000))),
        ("max_packet_size 2000", Config(limits=Limits(max_packet_bytes=2_000))),
        ("persistent_client_expiration 2w", Config(limits=Limits(max_session_expiry_s=1_209_600))),
        ("allow_anonymous true\npassword_file /etc/p q", Config(allow_anonymous=True, password_file="/etc/p q")),
        ("persistence false", Config(data_dir="")),
        ("acl_file /etc/acl", Config(acl_file="/etc/acl")),
        ("persistence true\npersistence_location /var/lib/m/", Config(data_dir="/var/lib/m")),
        ("set_tcp_nodelay true", Config()),
        ("check_retain_source true", Config()),
        (
            "plugin /x/mosquitto_dynamic_security.so\nplugin_opt_config_file /d\nplugin_opt_password_init_file /p",
            Config(dynamic_security=DynamicSecurityOptions(file="/d", password_init_file="/p")),
        ),
    ],
)
def test_an_option_is_converted(tmp_path: Path, text: str, expected: Config) -> None:
    assert converted(tmp_path, text) == (expected, [])


@pytest.mark.parametrize("is_per_listener", [False, True])
def test_login_options_hold_for_all_listeners_or_for_one(tmp_path: Path, is_per_listener: bool) -> None:
    told = "per_listener_settings true\n" * is_per_listener
    config, _ = converted(tmp_path, f"{told}listener 1\nallow_anonymous true\npassword_file p\nlistener 2 127.0.0.1")
    first, second = config.listeners
    of_all: tuple[Any, ...] = (config.password_file, config.allow_anonymous)
    assert of_all == ((None, False) if is_per_listener else ("p", True))
    assert (first.password_file, first.allow_anonymous) == (("p", True) if is_per_listener else (None, None))
    assert (second.password_file, second.allow_anonymous) == (None, None)


PLUGIN = "plugin /usr/lib/mosquitto_dynamic_security.so\nplugin_opt_config_file /d.json\n"


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("acl_file /a\n", "acl_file /a: one ACL file is for all listeners"),
        (PLUGIN, "plugin_opt_config_file /d.json: here dynamic security is for all listeners"),
    ],
)
def test_rules_of_one_listener_do_not_become_those_of_others(tmp_path: Path, options: str, left: str) -> None:
    alone = f"per_listener_settings true\nlistener 1\nallow_anonymous false\n{options}"
    config, said = converted(tmp_path, alone)
    is_dynamic = options == PLUGIN
    assert (config.acl_file, config.dynamic_security is not None) == (None if is_dynamic else "/a", is_dynamic)
    assert len(said) == 1 - is_dynamic, "with users in the file there is a way to log in"
    config, said = converted(tmp_path, f"{alone}listener 2\nallow_anonymous true\n")
    assert (config.acl_file, config.dynamic_security) == (None, None)
    assert left in said[0]
    assert "the listener on port 1: allow_anonymous false: " in said[1]


def test_bridges_are_converted(tmp_path: Path) -> None:
    text = """
connection site.b
addresses b1.example:1884 b2.example
bridge_protocol_version mqttv50
remote_clientid here
remote_username u
remote_password p
keepalive_interval 30
restart_timeout 2 20
start_type lazy
idle_timeout 90
cleansession false
try_private true
bridge_cafile ca.crt
bridge_insecure true
bridge_receive_maximum 50
bridge_outgoing_retain false
topic sensors/# out 1 "" plant/
topic cmd/# in 2 local/ remote/
topic "" both 0 here there
topic "all of it"
max_inflight_messages 7
connection second
address c.example
topic # both 1
listener 1884 127.0.0.1
"""
    config, left = converted(tmp_path, text)
    assert left == []
    first, second = config.bridges
    assert first == BridgeOptions(
        name="site.b",
        addresses=("b1.example:1884", "b2.example"),
        version="5.0",
        client_id="here",
        username="u",
        password="p",
        keep_alive_s=30,
        max_delay_s=20.0,
        start="lazy",
        idle_timeout_s=90.0,
        window=50,
        tls=BridgeTls(ca_file="ca.crt", insecure=True),
        topics=(
            BridgeTopic(pattern="sensors/#", qos=1, remote_prefix="plant/", retained=False),
            BridgeTopic(pattern="cmd/#", direction="in", qos=2, local_prefix="local/", remote_prefix="remote/"),
            BridgeTopic(direction="out", qos=0, local_prefix="here", remote_prefix="there", retained=False),
            BridgeTopic(direction="in", qos=0, local_prefix="here", remote_prefix="there"),
            BridgeTopic(pattern="all of it", qos=0, retained=False),
        ),
    )
    topics = (BridgeTopic(pattern="#", direction="both", qos=1),)
    assert second == BridgeOptions(name="second", addresses=("c.example",), version="3.1.1", topics=topics)
    assert config.limits.max_inflight == 7
    assert [each.port for each in config.listeners] == [1884]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("log_dest stdout", ["1: log_dest stdout: the log goes to standard error; a service manager keeps it"]),
        ("\nnew_option 5", ["2: new_option 5: no such option is known"]),
        ("max_queued_messages 0", ["1: max_queued_messages 0: everything has a limit here; set "]),
        ("max_inflight_bytes 0", ["1: max_inflight_bytes 0: everything has a limit here; set "]),
        ("listener 1 ::1\naccept_protocol_versions 6", ["2: accept_protocol_versions 6: its value is not understood"]),
        ("max_keepalive soon", ["1: max_keepalive soon: its value is not a number"]),
        ("persistent_client_expiration 5", ["1: persistent_client_expiration 5: its value is not a number of"]),
        (
            "listener 1 ::1\nmount_point a",
            ["2: mount_point a: it has to end with a slash, may not begin with $, and has no wildcards"],
        ),
        (
            "check_retain_source false",
            ["1: check_retain_source false: a retained message is sent only while its"],
        ),
        ("listener x", ["1: listener x: its port is not a number"]),
        (f"listener {'9' * 5_000}", ["1: listener 999"]),
        (f"max_keepalive {'9' * 5_000}", ["1: max_keepalive 999"]),
        (f"max_connections {'9' * 5_000}", ["1: max_connections 999"]),
        (f"persistent_client_expiration {'9' * 5_000}d", ["1: persistent_client_expiration 999"]),
        ("max_qos two", ["1: max_qos two: its value is not understood"]),
        ("max_qos 3", ["1: max_qos 3: its value is not understood"]),
        ("listener 1 ::1\nprotocol mqttsn", ["2: protocol mqttsn: its value is not understood"]),
        (
            "listener 1 ::1\ncertfile c\nkeyfile k\ntls_version tlsv1.1",
            ["4: tls_version tlsv1.1: TLS 1.2"],
        ),
        (
            "connection up\naddress x\ntopic #\ntry_private false\ncleansession true\nbridge_new 1\nstart_type now",
            [
                "4: try_private false: a 3.1.1 bridge first says",
                "5: cleansession true: both brokers keep",
                "6: bridge_new 1: no such option is known",
                "7: start_type now: its value is not understood",
            ],
        ),
        (
            "connection up\naddress x\ntopic #\nbridge_receive_maximum 65535\nbridge_session_expiry_interval 0\n"
            "keepalive_interval 0",
            [
                "4: bridge_receive_maximum 65535: window may be 1 to 60000",
                "5: bridge_session_expiry_interval 0: both brokers keep the session",
                "6: keepalive_interval 0: its value is not understood",
            ],
        ),
        ("connection up", ["1: connection up: a bridge needs an address and topics"]),
        ("connection a b\naddress x\ntopic #", ["1: connection a b: its name is a-b: "]),
        (
            "connection up\naddress x\ntopic a\ntopic $SYS/# in\ntopic # up\ntopic # in 3\nbridge_psk x",
            [
                "4: topic $SYS/# in: its value",
                "5: topic # up: its value",
                "6: topic # in 3: its value",
                "7: bridge_psk x: pre-shared",
            ],
        ),
        ("include_dir /nowhere", ["1: include_dir /nowhere: there is no such directory, or no .conf file in it"]),
        (
            "plugin /lib/mosquitto_go_auth.so\nplugin_opt_config_file go.json",
            ["1: plugin /lib/mosquitto_go_auth.so: plugins are not", "2: plugin_opt_config_file go.json: plugins"],
        ),
    ],
)
def test_a_line_without_a_counterpart_is_said_with_the_reason(tmp_path: Path, text: str, said: list[str]) -> None:
    _, left = converted(tmp_path, text)
    assert len(left) == len(said)
    assert all(sentence.startswith(begin) for sentence, begin in zip(left, said, strict=True))


@pytest.mark.parametrize("option", OPTIONS_OF_BRIDGES)
def test_each_option_of_a_bridge_is_converted_or_has_its_reason(tmp_path: Path, option: str) -> None:
    _, left = converted(tmp_path, f"connection up\naddress x\nremote_username u\ntopic #\n{option} -1")
    assert not [each for each in left if "no such option" in each]


@pytest.mark.parametrize("text", ["\x1b[2J 1", "listener \x1b[2J", "max_qos " + "x" * 60_000])
def test_a_line_without_a_counterpart_is_said_in_short_and_without_control_characters(
    tmp_path: Path, text: str
) -> None:
    _, (sentence,) = converted(tmp_path, text)
    assert sentence.isprintable()
    assert len(sentence) < 1_200


def test_a_listener_behind_a_proxy_trusts_this_machine_until_it_is_told_more(tmp_path: Path) -> None:
    config, left = converted(tmp_path, "listener 1 ::1\nenable_proxy_protocol 2")
    assert config.listeners[0].proxy_protocol == ProxyOptions(trusted=("127.0.0.1", "::1"))
    assert [sentence[:77] for sentence in left] == [
        "2: enable_proxy_protocol 2: only proxies on this machine may connect; name th"
    ]


def test_included_files_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name, port in (("b.conf", 2), ("a.conf", 1), ("ignored.txt", 3)):
        (tmp_path / "d" / name).write_text(f"listener {port} ::1\n")
    config, left = converted(tmp_path, f"include_dir {tmp_path / 'd'}\n")
    assert ([each.port for each in config.listeners], left) == ([1, 2], [])


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("bridge_cafile /ca\nbridge_insecure true", "bridge_insecure false"),
        ("bridge_outgoing_retain false", "bridge_outgoing_retain true"),
        ("bridge_protocol_version mqttv50", "bridge_protocol_version mqttv311"),
        ("bridge_tls_use_os_certs true", "bridge_tls_use_os_certs false"),
        ("start_type once", "start_type automatic"),
    ],
)
def test_the_last_line_for_an_option_of_a_bridge_holds(tmp_path: Path, first: str, last: str) -> None:
    def bridge(*lines: str) -> BridgeOptions:
        text = "\n".join(("listener 1 ::1", "connection b", "address x", "topic #", *before, *lines))
        config, left = converted(tmp_path, text)
        assert left == []
        return config.bridges[0]

    before, first = first.splitlines()[:-1], first.splitlines()[-1]
    assert bridge(first, last) == bridge(last) != bridge(last, first)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("max_connections 5", "max_connections -1"),
        ("max_qos 1", "max_qos 2"),
        ("certfile c\nkeyfile k\ncafile a\nrequire_certificate true", "require_certificate false"),
        ("protocol websockets", "protocol mqtt"),
        ("accept_protocol_versions 5", "accept_protocol_versions 3,4,5"),
        ("retain_available false", "retain_available true"),
    ],
)
def test_the_last_line_for_an_option_of_a_listener_holds(tmp_path: Path, first: str, last: str) -> None:
    def listener(*lines: str) -> ListenerOptions:
        config, left = converted(tmp_path, "\n".join(("listener 1 ::1", *before, *lines)))
        assert left == []
        return config.listeners[0]

    before, first = first.splitlines()[:-1], first.splitlines()[-1]
    assert listener(first, last) == listener(last) != listener(last, first)


def test_a_section_whose_only_option_is_taken_back_is_not_there(tmp_path: Path) -> None:
    config, left = converted(tmp_path, "listener 1 ::1\nrequire_certificate true\nrequire_certificate false\n")
    assert (config.listeners[0].tls, left) == (None, [])


BRIDGE = "listener 1 ::1\nconnection b\naddress x\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{BRIDGE}topic # in\nstart_type lazy",
            "a broker would not start: F:2: connection b: bridges[0].start is lazy",
        ),
        (
            f"{BRIDGE}topic #\nremote_password p",
            "a broker would not start: F:2: connection b: bridges[0].password needs",
        ),
        (
            f"{BRIDGE}topic #\nconnection c\naddress x\ntopic # in\nstart_type lazy",
            "a broker would not start: F:5: connection c: bridges[1].start is lazy",
        ),
        (f"{BRIDGE}topic b\ntopic a+", "not converted: F:5: topic a+: pattern: "),
        (
            f"{BRIDGE}topic #\naddress a:1,b:2",
            "not converted: F:5: address a:1,b:2: addresses has 'a:1,b:2': host:port",
        ),
        ("listener 1", "a broker would not start: F: listeners[0].host is '', where the network reaches it"),
        ("listener 0 /" + "a" * 200, "a broker would not start: F: listeners[0].path"),
    ],
)
def test_an_import_with_which_no_broker_would_start_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "m.conf"
    file.write_text(text)
    result = CliRunner().invoke(main, ["import", str(file)])
    assert result.exit_code == 1
    (sentence,) = result.stderr.splitlines()
    assert sentence.replace(str(file), "F").startswith(said)


def test_the_printed_configuration_is_toml_whatever_the_file_holds(tmp_path: Path) -> None:
    config, _ = converted(tmp_path, 'listener 1 ::1\npassword_file a\x7f\x1b"\\b')
    assert config.password_file == 'a\x7f\x1b"\\b'


def test_the_command_prints_the_file_and_what_is_left(tmp_path: Path) -> None:
    file = tmp_path / "m.conf"
    file.write_text("listener 1884 ::1\nlog_type all\n")
    result = CliRunner().invoke(main, ["import", str(file)])
    assert result.exit_code == 1
    assert result.stdout.startswith(f"# Converted from {file} by 'mqttlite import'.\n")
    assert result.stderr == f"not converted: {file}:2: log_type all: set --log-level\n"
    file.write_text("listener 1884 127.0.0.1\n")
    assert CliRunner().invoke(main, ["import", str(file)]).exit_code == 0


@pytest.mark.parametrize("content", [None, b"\xff", "endless"])
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, content: bytes | str | None) -> None:
    file = tmp_path / "m.conf"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        file.write_text(f"include_dir {tmp_path}\n" * (MAX_FILES + 1))
    result = CliRunner().invoke(main, ["import", str(file)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"mqttlite import: {file}: ")
