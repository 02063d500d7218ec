"""Wrong configurations, each with the line and the sentence that an operator reads. Nothing is listened on here."""

import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqttlite.cli.main import main
from mqttlite.config import Config, ConfigError, ListenerOptions, load_config, parse_config
from mqttlite.config.lines import Lines
from mqttlite.security.certificates import init
from mqttlite.server import Broker

# The file, and for each problem its line and what is said; the line is 0 where the sentence names no line.
WRONG: list[tuple[str, list[tuple[int, str]]]] = [
    # ── not TOML
    ("listeners = [", [(1, "this is not TOML (Invalid value)")]),
    ("[limits\nmax_inflight = 1", [(1, "is not TOML")]),
    ('[[listeners]]\nhost = "127.0.0.1', [(2, "a quote is not closed")]),
    ("[[listeners]]\nhost = 127.0.0.1", [(2, "a value is a number, true, false, \"text in quotes\", or a list")]),
    ("[[listeners]]\nport = 1883\nport = 1884", [(3, "stands there a second time: remove one of them")]),
    ("[limits]\nmax_inflight = 1\n[limits]\n", [(3, "the section stands there a second time")]),
    ("[[listeners]]\nport: 1883", [(2, "an option is written name = value")]),
    ("[limits]\nmax_inflight = ", [(2, "a value is a number")]),
    ("stop_timeout_s = True", [(1, "'stop_timeout_s = True' is not TOML")]),
    # ── unknown names
    ("x = 1", [(1, "x is unknown; the file may have listeners, limits,")]),
    ("[limit]\nmax_inflight = 5", [(1, "limit is unknown; did you mean [limits]?")]),
    ("[[listener]]\nport = 5", [(1, "listener is unknown; did you mean [[listeners]]?")]),
    ("\n[limits]\nmax_inflght = 5", [(3, "limits.max_inflght is unknown; did you mean max_inflight?")]),
    ("[limits]\nmax-inflight = 5", [(2, "limits.max-inflight is unknown; did you mean max_inflight?")]),
    ("[limits]\nMaxInflight = 5", [(2, "limits.MaxInflight is unknown; did you mean max_inflight?")]),
    ("max_inflight = 5", [(1, "max_inflight is unknown here; it belongs to [limits]")]),
    ("port = 1883", [(1, "port is unknown here; it belongs to [[listeners]] or [metrics]")]),
    ("[telemetry]\ndirectory = 't'\nstop_timeout_s = 1", [(3, "it belongs to the top of the file")]),
    ("[[listeners]]\ncert_file = 'a'", [(2, "listeners[0].cert_file is unknown here; it belongs to [listeners.tls]")]),
    ("[[listeners]]\nwebsocket = { origin = [] }", [(2, "websocket.origin is unknown; did you mean origins?")]),
    (
        "[[listeners]]\ncafile = 'a'",
        [(2, "is unknown here; did you mean ca_file of [listeners.tls] or [bridges.tls] or [push] or [http.tls] or")],
    ),
    ("[[listeners]]\nzebra = 'a'", [(2, "zebra is unknown; listeners[0] may have name, host,")]),
    # ── types
    ('[limits]\nmax_inflight = "many"', [(2, 'limits.max_inflight must be a whole number, not the text "many"')]),
    ('[[listeners]]\nport = "1883"', [(2, "write 1883 without quotes")]),
    ("[limits]\nmax_inflight = 1.5", [(2, "must be a whole number, not 1.5")]),
    ("[limits]\nmax_inflight = true", [(2, "must be a whole number, not true")]),
    ("[limits]\nmax_inflight = 2026-01-01", [(2, "must be a whole number, not the date or time 2026-01-01")]),
    ('stop_timeout_s = "5s"', [(1, 'stop_timeout_s must be a number, not the text "5s"')]),
    ("[[listeners]]\nhost = 5", [(2, 'listeners[0].host must be text in quotes, not 5; write "5"')]),
    ('allow_anonymous = "true"', [(1, "must be true or false, not the text \"true\"; write true without quotes")]),
    ("allow_anonymous = 1", [(1, "must be true or false, not 1; write true")]),
    ('[sys]\npresence = "off"', [(2, 'must be true or false, not the text "off"; write false')]),
    ('[delivery_log]\ntopics = "plant/#"', [(2, 'must be a list, not the text "plant/#"; write ["plant/#"]')]),
    ("[delivery_log]\ntopics = ['a', 5]", [(2, "delivery_log.topics[1] must be text in quotes, not 5")]),
    ("[listeners]\nport = 1883", [(1, "must be a list, not a section; write its header with two brackets")]),
    ("listeners = [1883]", [(1, "listeners[0] must be a section, not 1883")]),
    ("limits = 5", [(1, "limits must be a section, not 5; write its options below a header, [limits]")]),
    ("[[limits]]", [(1, "must be a section, not a list; write its options below a header, [limits]")]),
    ("[[listeners]]\npath = 's'\nmode = '0660'", [(3, "write 0o660 without quotes")]),
    ("[[listeners]]\ntls = true", [(2, "listeners[0].tls must be a section, not true")]),
    (
        "[[listeners]]\ntls = { cert_file = 'a', key_file = 'b', min_version = 1.2 }",
        [(2, 'must be "1.2" or "1.3", not 1.2; write "1.2" in quotes')],
    ),
    # ── values that an option does not have
    (
        "[[listeners]]\n[listeners.tls]\ncert_file = 'a'\nkey_file = 'b'\nmin_version = '1.1'",
        [(5, 'listeners[0].tls.min_version must be "1.2" or "1.3", not the text "1.1"')],
    ),
    (
        '[share_policies]\n"*" = "roundrobin"',
        [(2, 'must be "hash_key", "hash_topic", "least_inflight", "prefer_local" or "round_robin", not the text')],
    ),
    ('[telemetry]\ndirectory = "t"\nformat = "csv"', [(3, 'must be "auto", "jsonl" or "parquet", not the text "csv"')]),
    ("[http]\nroles = { amdin = ['ann'] }", [(2, "http.roles.amdin is unknown; did you mean admin?")]),
    ("[http.roles]\nroot = ['ann']", [(2, "http.roles.root is unknown; http.roles may have ")]),
    # ── another file
    ("# local\nlistener 1883\nallow_anonymous true", [(2, "this is a mosquitto.conf; 'mqttlite import ")]),
    ('[limits]\non_overflow = "panic"', [(2, "it may be drop_newest, drop_oldest, disconnect")]),
    ('[telemetry]\ndirectory = "t"\npseudonymise = ["names"]', [(3, "telemetry.pseudonymise[0] must be")]),
    # ── ranges
    ("[[listeners]]\nport = 65536", [(2, "listeners[0].port is 65536: it may be 0 to 65535")]),
    ("[[listeners]]\nport = -1", [(2, "listeners[0].port is -1: it may be 0 to 65535")]),
    ("[metrics]\nport = 99999", [(2, "metrics.port is 99999: it may be 0 to 65535")]),
    ("[[listeners]]\nmax_connections = 0", [(2, "listeners[0].max_connections is 0: 1 at least")]),
    ("[[listeners]]\nmax_half_open = 0", [(2, "listeners[0].max_half_open is 0: 1 at least")]),
    ('[[listeners]]\nmount_point = "a"', [(2, "listeners[0].mount_point is 'a': it ends with a slash")]),
    ('[[listeners]]\nmount_point = "$a/"', [(2, "listeners[0].mount_point is '$a/': it may not begin with $")]),
    ('[[listeners]]\nmount_point = "+/"', [(2, "mount_point is '+/': topic name '+/' contains a wildcard")]),
    ("[limits]\nmax_topic_levels = 202", [(2, "limits.max_topic_levels is 202: 201 at most")]),
    ('[limits]\non_large_payload = "x"', [(2, "limits.on_large_payload is 'x'")]),
    ("[[listeners]]\nhandshake_timeout_s = inf", [(2, "listeners[0].handshake_timeout_s is inf")]),
    ("[limits]\nmax_inflight = 0", [(2, "limits.max_inflight is 0: 1 at least")]),
    ("[limits]\nmax_inflight = 70000", [(2, "limits.max_inflight is 70000: 65535 at most")]),
    (f"[limits]\nmax_queued_messages = {2**64}", [(2, f"is {2**64}: {2**63 - 1} at most")]),
    ("[limits]\nconnect_timeout_s = nan", [(2, "limits.connect_timeout_s is nan")]),
    ("stop_timeout_s = -1", [(1, "stop_timeout_s is -1: 0 at least, and finite")]),
    ("password_cache_s = -1", [(1, "password_cache_s is -1: 0 at least, and finite")]),
    ("[login_jail]\nwindow_s = 0", [(2, "login_jail.window_s is 0: above 0, and finite")]),
    ("[login_jail]\nexempt = ['10.0.0.1/8']", [(2, "login_jail.exempt has '10.0.0.1/8'")]),
    ("[sys]\ninterval_s = 0.05", [(2, "sys.interval_s is 0.05: 0.1 at least")]),
    ("[lame_duck]\ndeadline_s = inf", [(2, "lame_duck.deadline_s is inf")]),
    ("[[listeners]]\n[listeners.capabilities]\nmaximum_qos = 3", [(3, "maximum_qos is 3: it may be 0, 1 or 2")]),
    ("[[listeners]]\npath = 's'\nmode = 660", [(3, "mode is 660 (0o1224): it may be 0o000 to 0o777")]),
    ("listeners = []", [(1, "listeners is empty: one at least")]),
    ("\n[retained_expiry_s]\n'a/b.c/#' = 'x'", [(3, "retained_expiry_s.a/b.c/# must be a whole number, not the text")]),
    ("[retained_expiry_s]\n'#' = -1", [(1, "retained_expiry_s has '#' = -1: it may be 1 to 4294967294 seconds, or 0")]),
    ("x = 1\nretained_expiry_s = { '#' = 4294967295 }", [(1, "x is unknown"), (2, "4294967295: it may be 1 to")]),
    (
        f"retained_expiry_s = {{ {', '.join(f'a{n} = 1' for n in range(101))} }}",
        [(1, "retained_expiry_s has 101 filters: 100 at most")],
    ),
    # ── forms
    (
        "retained_expiry_s = { 'a/#/b' = 1, '+x' = 1 }",
        [(1, "'#' in 'a/#/b' is not a whole last level [MQTT-4.7.1-1]; '+' in '+x' is not a whole level")],
    ),
    ("[delivery_log]\ntopics = ['a/#/b']", [(2, "delivery_log.topics[0]: '#' in 'a/#/b' is not a whole last level")]),
    ("[[listeners]]\nwebsocket = { path = 'mqtt' }", [(2, "listeners[0].websocket.path is 'mqtt': it begins with /")]),
    ("[[listeners]]\nwebsocket = { origins = ['a.example'] }", [(2, "origins has 'a.example': an origin is like")]),
    ("[[listeners]]\nproxy_protocol = { trusted = ['10.0.0.0/40'] }", [(2, "trusted has '10.0.0.0/40'")]),
    ("[[listeners]]\nproxy_protocol = { trusted = ['10.0.0.1/8'] }", [(2, "has host bits set; write 10.0.0.0/8")]),
    ("[[listeners]]\nproxy_protocol = {}", [(2, "listeners[0].proxy_protocol.trusted is empty: nobody could connect")]),
    ("[telemetry]\ndirectory = ''", [(2, "telemetry.directory is empty: it names the folder")]),
    ("password_file = ''", [(1, "password_file is empty: name a file, or leave the option out")]),
    ('password_file = "a\\u0000b"', [(1, "it has a NUL character")]),
    # ── what is missing, and what does not go together
    ("[telemetry]\nrotate_bytes = 1", [(1, "telemetry.directory is missing: it has no default and must be text")]),
    ("[[listeners]]\ntls = { cert_file = 'a' }", [(2, "listeners[0].tls.key_file is missing")]),
    ("[telemetry]\ndirectory = 't'\npseudonymise = ['topics']", [(3, "pseudonymise needs pseudonym_key_file")]),
    ("[[listeners]]\npath = '/run/x.sock'\nport = 1883", [(3, "listeners[0].port is 1883 beside path")]),
    ("[[listeners]]\npath = '/run/x.sock'\nport = 5", [(3, "listeners[0].port is 5 beside path: a listener")]),
    ("[[listeners]]\npath = 'x'\nhost = '::1'", [(3, "listeners[0].host is '::1' beside path")]),
    ("[[listeners]]\npath = 'x'\nreuse_port = true", [(3, "listeners[0].reuse_port is True beside path")]),
    ("[[listeners]]\nport = 0\nreuse_port = true", [(3, "reuse_port is set and port is 0: name the port")]),
    ("[[listeners]]\nreuse_port = true", [(2, "reuse_port is set, and there is no section nodes")]),
    (f"[[listeners]]\npath = '/{'x' * 107}'", [(2, "a Unix socket's path has 107 bytes at most")]),
    ("[[listeners]]\n[[listeners]]", [(2, "listeners[1].port is 1883, and listeners[0].port is 1883, too")]),
    ("[[listeners]]\nhost = '0.0.0.0'\n[[listeners]]\nhost = 'localhost'", [(3, "give one of them another port")]),
    ("[[listeners]]\n[metrics]\nport = 1883", [(3, "metrics.port is 1883, and listeners[0].port is 1883, too")]),
    ("[[listeners]]\npath = 'a'\n[[listeners]]\npath = './a'", [(4, "and that of listeners[0] is the same")]),
    (
        "[[listeners]]\nname = 'a'\n[[listeners]]\nname = 'a'\nport = 5",
        [(4, "listeners[1].name is 'a', and listeners[0] has that name, too")],
    ),
    # ── several at once, in the order of their lines
    (
        "x = 1\n[limits]\nmax_inflight = 0\nmax_sessions = 'a'\n[[listeners]]\nport = 70000\nmax_connections = 0",
        [(1, "x is"), (3, "max_inflight is 0"), (4, "max_sessions must"), (6, "port is 70000"), (7, "max_connections")],
    ),
    (
        "[[listeners]]\ntls = { cert_file = 5, color = 1 }\nport = 70000\n[[listeners]]\nhost = 7",
        [(2, "cert_file must"), (2, "color is unknown"), (2, "key_file is missing"), (3, "port is"), (5, "host must")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG, ids=[text.replace("\n", "|")[:60] for text, _ in WRONG])
def test_everything_that_is_wrong_is_said_with_its_line(
    tmp_path: Path, text: str, expected: list[tuple[int, str]]
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    problems = list(caught.value.problems)
    assert len(problems) == len(expected), problems
    for line, said in expected:
        (found,) = [each for each in problems if said in each] or [f"nothing says {said!r}: {problems}"]
        assert found.startswith(f"{file}:{line}: "), found
    assert not [each for each in problems if "expected `" in each or "object" in each]


def test_the_table_has_sixty_rows_and_more() -> None:
    assert len(WRONG) >= 60


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ufeff[limits]\nmax_inflight = 5",
        "[[listeners]]\nport = 0\n[[listeners]]\nport = 0",
        "[[listeners]]\nhost = '0.0.0.0'\n[[listeners]]\nhost = '::'",
        "[[listeners]]\nhost = '127.0.0.1'\n[[listeners]]\nhost = '127.0.0.2'",
        "[[listeners]]\npath = 'a'\n[[listeners]]\npath = 'b'",
        "[[listeners]]\nname = 'tcp-5'\n[[listeners]]\nport = 5",
        "[[listeners]]\nport = 5\nwebsocket = true\n[[listeners]]\nport = 6\nwebsocket = { path = '/x' }",
        "stop_timeout_s = 1",
    ],
)
def test_valid_values_are_accepted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text, encoding="utf-8")
    load_config(file)


def test_a_program_is_told_all_at_once_too() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"x": 1, "limits": {"max_inflight": 0}})
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError, match=r"listeners\[1\]\.port is 5, and listeners\[0\]\.port is 5"):
        Broker(Config(listeners=(ListenerOptions(port=5), ListenerOptions(port=5))))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("a", 1), ("s.b", 3), ("s.c.d", 4), ("l[0].x", 6), ("l[1]", 7), ("l[1].t.y", 9), ("l[1].t.z", 8), ("l[2]", 5),
        ('q.*', 11), ("s.b[3]", 3), ("none", None),
    ],
)  # fmt: skip
def test_lines_are_found_by_paths(path: str, line: int | None) -> None:
    text = 'a = 1\n[s] # x\nb = [1]\nc.d = 2\n[[l]]\nx = 1\n[[l]]\n[l.t]\ny = 5\n["q"]\n"*" = 1\n'
    assert Lines(text).find(path) == line


# ── files, and what the commands say ─────────────────────────────────────────────────────────────────────────────────

Made = Callable[[Path], str]

PSEUDONYMS = "[telemetry]\ndirectory = 't'\npseudonymise = ['topics']\n"


def plain(text: str) -> Made:
    return lambda _folder: text


def with_file(name: str, content: str, text: str) -> Made:
    def make(folder: Path) -> str:
        (folder / name).write_text(content)
        return text

    return make


def with_certificates(tls: str) -> Made:
    def make(folder: Path) -> str:
        init(folder, clients=["other"])
        return f"[[listeners]]\ntls = {{ {tls} }}"

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (plain("password_file = 'nowhere'"), "broker.toml:1: password_file: nowhere: cannot be read: No such file"),
        (plain("[[listeners]]\npassword_file = '.'"), "listeners[0].password_file: "),
        (with_file("users", "ann", "password_file = 'users'"), "password_file: users:1: "),
        (plain("[telemetry]\ndirectory = 'broker.toml'"), "telemetry.directory: "),
        (plain("data_dir = 'broker.toml/data'"), "broker.toml is a file; name a folder"),
        (plain("[telemetry]\ndirectory = 'broker.toml/x'"), "broker.toml is a file; name a folder"),
        (
            with_file("key", "short", f"{PSEUDONYMS}pseudonym_key_file = 'key'"),
            "telemetry.pseudonym_key_file: key: a key of 5 bytes is too short",
        ),
        (
            plain(f"{PSEUDONYMS}pseudonym_key_file = 'no/key'"),
            "telemetry.pseudonym_key_file: no/key: cannot be made",
        ),
        (plain("[[listeners]]\npath = 'no/x.sock'"), "listeners[0].path: no/x.sock: the folder no does not exist"),
        (plain("[[listeners]]\npath = 'broker.toml'"), "there is a file which is not a socket"),
        (with_certificates("cert_file = 'no', key_file = 'server.key'"), "tls.cert_file: no: no such file"),
        (with_certificates("cert_file = 'server.key', key_file = 'server.crt'"), "are the two swapped?"),
        (with_certificates("cert_file = 'server.crt', key_file = 'other.key'"), "is not the key of server.crt"),
        (
            with_certificates("cert_file = 'server.crt', key_file = 'server.key', require_client_cert = true"),
            "listeners[0].tls.ca_file: Client certificates are required",
        ),
        (plain("[[listeners]]\nhost = '127.0.0.1:1883'"), 'write host = "127.0.0.1" and port = 1883'),
        (plain("[[listeners]]\nhost = 'mqtt://x'\nallow_anonymous = true"), "not a URL"),
        (plain("[[listeners]]\nhost = '192.0.2.1'\nallow_anonymous = true"), "this machine has no such address"),
        (plain("[metrics]\nhost = '256.1.1.1'"), "metrics.host is '256.1.1.1': the name cannot be resolved"),
    ],
)  # fmt: skip
def test_files_and_addresses_that_cannot_be_used_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Made, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broker.toml").write_text(make(tmp_path))
    result = CliRunner().invoke(main, ["config", "check", "broker.toml"])
    assert result.exit_code == 2
    assert said in result.stderr
    assert "1 problem: a broker would not start." in result.stderr


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("data_dir = 'locked/data'", "data_dir"),
        ("[telemetry]\ndirectory = 'locked'", "telemetry.directory"),
        ("[dynamic_security]\nfile = 'locked/dynamic.json'", "dynamic_security.file"),
    ],
)
def test_a_folder_that_this_user_may_not_write_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, option: str
) -> None:
    """Root may write everywhere, so the answer of the system is made here."""
    locked = tmp_path / "locked"
    locked.mkdir()
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked and may(path, mode))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broker.toml").write_text(text)
    result = CliRunner().invoke(main, ["config", "check", "broker.toml"])
    assert result.exit_code == 2
    assert f"{option}: " in result.stderr
    assert f"this user may not write to {locked}; name another folder" in result.stderr


def test_a_check_says_what_a_broker_would_do_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "broker.toml"
    file.write_text(
        "data_dir = 'kept'\nallow_anonymous = true\n[[listeners]]\nhost = ''\nport = 0\n"
        "[telemetry]\ndirectory = 'rows'\n[metrics]\nport = 0"
    )
    result = CliRunner().invoke(main, ["serve", "-c", "broker.toml", "--check"])
    assert result.exit_code == 0
    assert result.stdout == (
        "broker.toml is right. A broker would serve:\n"
        "  MQTT over TCP on port 0 of every address of this machine, for its host is empty, for everybody (tcp-0)\n"
        "  sessions, queued and retained messages kept in kept\n"
        "  metrics, health and status on port 0 of 127.0.0.1\n"
        "  telemetry into rows\n"
    )
    assert "warning: listener tcp-0 is open to the network, on every address of this machine" in result.stderr
    assert os.listdir(tmp_path) == ["broker.toml"]


@pytest.mark.parametrize(
    ("text", "callers"),
    [
        ("", "everybody"),
        ("allow_anonymous = false", "callers with an API key"),
        ("host = '0.0.0.0'\nallow_anonymous = true", "everybody"),
        ("authentication = ['password']", "callers with an API key and users of users"),
        (
            "authentication = ['password']\nallow_anonymous = true",
            "callers with an API key, users of users and anonymous clients",
        ),
    ],
)
def test_a_check_says_for_whom_the_gateway_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, callers: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users").touch()
    first = "password_file = 'users'\n" if "authentication" in text else ""
    (tmp_path / "broker.toml").write_text(f"{first}[[listeners]]\nport = 0\n[http]\nport = 0\n{text}")
    result = CliRunner().invoke(main, ["config", "check", "broker.toml"])
    assert f", for {callers} (http)\n" in result.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "allow_anonymous = true\n[[listeners]]\nhost = '0.0.0.0'\nport = 0",
            "open to the network, on every IPv4 address",
        ),
        ("password_file = 'users'\n[[listeners]]\nhost = ''\nport = 0", "for its host is empty; write host = "),
        ("password_file = 'users'\n[[listeners]]\nhost = '::'\nport = 0", "takes passwords over the network without"),
        ("[metrics]\nhost = '0.0.0.0'\nport = 0\n[[listeners]]\nport = 0", "status are served on every IPv4 address"),
        ("allow_anonymous = true\n[[listeners]]\nport = 0", "allow_anonymous has no effect without a password_file"),
        ("[[listeners]]\nport = 0\nmax_connections = 5\nmax_half_open = 6", "max_half_open is above max_connections"),
        (
            "[[listeners]]\nport = 0\ncapabilities = { server_moved = true }",
            "has no effect without capabilities.server",
        ),
    ],
)
def test_a_probable_mistake_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users").touch()
    (tmp_path / "broker.toml").write_text(text)
    result = CliRunner().invoke(main, ["config", "check", "broker.toml"])
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if said in line and line.startswith("warning: ")]


@pytest.mark.parametrize(
    ("arguments", "is_refused"),
    [
        (("--host", "0.0.0.0"), True),
        (("--host", "0.0.0.0", "--allow-anonymous"), False),
        (("--host", "0.0.0.0", "--password-file", "users"), False),
        (("--host", "127.0.0.1"), False),
    ],
)
def test_a_broker_that_is_open_to_the_network_is_refused_unless_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], is_refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users").touch()
    result = CliRunner().invoke(main, ["serve", "--check", "--port", "0", *arguments])
    assert result.exit_code == (2 if is_refused else 0)
    assert ("--host is '0.0.0.0', where the network reaches it" in result.stderr) == is_refused


def test_a_file_that_leaves_a_listener_open_to_the_network_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[[listeners]]\nport = 0\n\n[[listeners]]\nport = 0\nhost = '::'\n")
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}:6: listeners[1].host is '::', where the network reaches it")


def test_a_port_that_is_in_use_is_a_warning() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["serve", "--check", "--port", str(port)])
    assert result.exit_code == 0
    assert f"warning: port {port} of 127.0.0.1 is in use now; does the broker run already?" in result.stderr


@pytest.mark.parametrize(
    ("days_left", "said"), [(-1, "is out of date since 20"), (29, "is out of date in 28 days"), (31, "")]
)
def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path, days_left: int, said: str) -> None:
    init(tmp_path, days=100, now=datetime.now(UTC) + timedelta(days=days_left - 100, hours=1, minutes=-1))
    files = ("--cert", str(tmp_path / "server.crt"), "--key", str(tmp_path / "server.key"))
    result = CliRunner().invoke(main, ["serve", "--check", "--tls-port", "0", *files])
    assert result.exit_code == 0
    assert said in result.stderr
    assert ("server.crt" in result.stderr) is bool(said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "5", "--tls-port", "5", "--cert", "c", "--key", "k"), "--tls-port is 5, and --port is 5, too"),
        (("--port", "5", "--metrics-port", "5"), "--metrics-port is 5, and --port is 5, too"),
        (("--port", "5", "--http-port", "5"), "--http-port is 5, and --port is 5, too"),
        (("--tls-port", "5", "--cert", "no", "--key", "k"), "--cert: no: no such file"),
        (("--password-file", "no"), "--password-file: no: cannot be read"),
        (("--telemetry", "/dev/null/x"), "--telemetry: /dev/null/x: /dev/null is a file"),
        (("--telemetry", ""), "--telemetry is empty"),
        (("--socket", ""), "--socket: path is empty"),
        (("--host", "nowhere.invalid"), "--host is 'nowhere.invalid': the name cannot be resolved"),
        (("--ws-origin", "x", "--cert", "a"), "--ws-origin: origins has 'x'"),
        (("--ws-origin", "x", "--cert", "a"), "--ws-origin belongs to --ws-port"),
        (("--ws-origin", "x", "--cert", "a"), "belong to --tls-port, which is missing"),
    ],
)
def test_wrong_flags_are_named(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, ["serve", "--check", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr


def test_wrong_options_and_wrong_files_are_said_together(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("password_file = '/no/users'\n[limits]\nmax_inflight = 0\n[[listeners]]\nport = 'x'\n[[listeners]]")
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    said = [line.removeprefix(f"{file}:")[:30] for line in result.stderr.splitlines()]
    assert said == [
        "3: limits.max_inflight is 0: 1",
        "5: listeners[0].port must be a",
        "1: password_file: /no/users: c",
        "3 problems: a broker would not",
    ]


def test_a_wrong_file_and_wrong_flags_are_said_together(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("x = 1\ny = 2")
    result = CliRunner().invoke(main, ["serve", "-c", str(file), "--cert", "a"])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 3


async def test_a_folder_that_cannot_be_written_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = parse_config({"telemetry": {"directory": str(tmp_path / "file" / "rows")}, "listeners": [{"port": 0}]})
    broker = Broker(config)
    with pytest.raises(ConfigError, match=r"telemetry\.directory: .*: there is a file of that name"):
        await broker.start()


@pytest.mark.parametrize("text", ["x" * 60_000, f"data_dir = {'9' * 4_000}x", f'[limits]\n"{"y" * 60_000}" = 1'])
def test_a_long_wrong_line_is_named_in_short(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:")
    assert len(str(caught.value)) < 1_200


def test_a_wrong_key_is_named_without_its_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('"\\u001b[2J" = 1\n')
    with pytest.raises(ConfigError, match=r"x1b\[2J") as caught:
        load_config(path)
    assert all(each.isprintable() for each in caught.value.problems)


def test_options_of_an_extension_have_the_types_of_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[[extensions]]\nuse = 'a:B'\noptions = { on = true, most = 7, rate = 2.5, names = ['a'] }")
    assert load_config(file).extensions[0].options == {"on": True, "most": 7, "rate": 2.5, "names": ["a"]}


@pytest.mark.parametrize("command", [("config", "check"), ("check",), ("serve", "--config")])
def test_a_check_says_which_extension_is_not_there(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "broker.toml"
    text = (
        "[[extensions]]\nuse = 'no_such_module:hooks'\n[[extensions]]\nuse = 'mqttlite:Hooks'\noptions = { most = 7 }"
    )
    file.write_text(text)
    result = CliRunner().invoke(main, [*command, str(file)])
    assert result.exit_code == 2
    assert f"{file}:2: extensions[0].use is no_such_module:hooks: there is no module" in result.output
    assert f"{file}:5: extensions[1].options.most is unknown; there are none" in result.output
