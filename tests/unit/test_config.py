"""The config: what a file may say, what is said of one that is wrong, and that the reference knows every option."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions, changed_options, load_config, parse_config
from mqttlite.config.checks import lets_bridges
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import Limits
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.security.tls import TlsOptions
from mqttlite.telemetry.sys_topics import SysOptions

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"


def load(folder: Path, text: str) -> Config:
    file = folder / "broker.toml"
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def test_nothing_at_all_is_mqtt_on_this_machine() -> None:
    (listener,) = parse_config({}).listeners
    assert (listener.host, listener.port, listener.tls, listener.title()) == ("127.0.0.1", 1883, None, "tcp-1883")


def test_listeners_without_names_are_told_apart() -> None:
    hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    unnamed = tuple(ListenerOptions(host=host) for host in hosts)
    assert Config(listeners=unnamed).listener_names() == ("tcp-1883", "tcp-1883-2", "tcp-1883-3")
    named = ListenerOptions(name="tcp-1883-2", port=5)
    assert Config(listeners=(*unnamed, named)).listener_names() == (
        *("tcp-1883", "tcp-1883-3", "tcp-1883-4", "tcp-1883-2"),
    )


def test_a_file_says_everything(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        stop_timeout_s = 2

        [[listeners]]
        port = 1884

        [[listeners]]
        name = "devices"
        host = "::"
        port = 8883
        max_connections = 10
        handshake_timeout_s = 3.5
        tls = { cert_file = "s.crt", key_file = "s.key", ca_file = "ca.crt", require_client_cert = true }
        capabilities = { maximum_qos = 1 }

        [limits]
        max_inflight = 20
        on_overflow = "drop_oldest"

        [telemetry]
        directory = "rows"
        """,
    )
    assert config.listeners == (
        ListenerOptions(port=1884),
        ListenerOptions(
            name="devices",
            host="::",
            port=8883,
            max_connections=10,
            handshake_timeout_s=3.5,
            tls=TlsOptions("s.crt", "s.key", "ca.crt", True),
            capabilities=Capabilities(maximum_qos=1),
        ),
    )
    assert config.limits == Limits(max_inflight=20, on_overflow="drop_oldest")
    assert config.telemetry == TelemetryOptions(directory="rows")
    assert config.stop_timeout_s == 2.0


SECTIONS = [each for each in msgspec.structs.fields(Config) if dataclasses.is_dataclass(each.default)]


@pytest.mark.long
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_the_other_options_of_a_section_keep_their_defaults(section: msgspec.structs.FieldInfo) -> None:
    for option in dataclasses.fields(type(section.default)):
        config = parse_config({section.name: {option.name: getattr(section.default, option.name)}})
        assert getattr(config, section.name) == section.default


def test_a_file_that_is_no_text_is_said_so(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not text in UTF-8"):
        load_config(file)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ListenerOptions, {"port": -1}),
        (ListenerOptions, {"max_connections": 0}),
        (ListenerOptions, {"max_half_open": 0}),
        (ListenerOptions, {"handshake_timeout_s": 0.0}),
        (Config, {"listeners": ()}),
        (Config, {"stop_timeout_s": -1.0}),
    ],
)
def test_options_made_by_a_program_are_checked_like_a_file(kind: type[Any], options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        kind(**options)


def options_of(kind: type[Any]) -> dict[str, Any]:
    """The options of a section and their defaults; None where one must be given."""
    if dataclasses.is_dataclass(kind):
        return {
            field.name: None if field.default is dataclasses.MISSING else field.default
            for field in dataclasses.fields(kind)
        }
    return {
        field.encode_name: None if field.default is msgspec.NODEFAULT else field.default
        for field in msgspec.structs.fields(kind)
    }


def sections() -> dict[str, type[Any]]:
    """Every table that a file may have, by the heading of its chapter."""
    found: dict[str, type[Any]] = {"The file": Config}

    def visit(kind: type[Any]) -> None:
        for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
            for part in getattr(field.type, "types", (getattr(field.type, "item_type", field.type),)):
                inner = getattr(part, "cls", None)
                if inner is not None and isinstance(inner, type) and inner not in found.values():
                    found[field.encode_name] = inner
                    visit(inner)

    visit(Config)
    return found


def documented() -> dict[str, dict[str, str]]:
    """Chapter, option and default as the reference has them."""
    chapters: dict[str, dict[str, str]] = {}
    for chapter in re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.M)[1:]:
        name = chapter.partition("\n")[0].strip().strip("`")
        rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", chapter, flags=re.M)
        chapters[name.rpartition(".")[2]] = {option: default.strip() for option, default in rows}
    return chapters


@pytest.mark.parametrize("name", sections())
def test_the_reference_has_every_option_with_its_default(name: str) -> None:
    options, written = options_of(sections()[name]), documented().get(name.strip("`"), {})
    assert sorted(options) == sorted(written)
    for option, default in options.items():
        if isinstance(default, bool):
            assert written[option] == f"`{str(default).lower()}`", option
        elif isinstance(default, (int, float)):
            number = written[option].strip("`").replace("_", "")
            assert (int(number, 0) if number[:2] in ("0x", "0o") else float(number)) == default, option
        elif isinstance(default, str):
            assert written[option] == f'`"{default}"`', option
        elif isinstance(default, tuple) and not default:
            assert written[option] == "`[]`", option


@pytest.mark.parametrize(
    ("connections", "asked", "limit"), [(50_000, None, 10_000), (400, None, 100), (1, None, 64), (400, 7, 7)]
)
def test_a_quarter_of_the_connections_may_be_half_open(connections: int, asked: int | None, limit: int) -> None:
    assert ListenerOptions(max_connections=connections, max_half_open=asked).half_open_limit() == limit


@pytest.mark.parametrize(
    ("former", "new", "changed"),
    [
        (Config(), Config(), []),
        (Config(), Config(stop_timeout_s=1.0), ["stop_timeout_s"]),
        (Config(), Config(limits=Limits(max_inflight=7)), ["limits.max_inflight"]),
        (
            Config(listeners=(ListenerOptions(), ListenerOptions(port=1))),
            Config(listeners=(ListenerOptions(), ListenerOptions(port=2))),
            ["listeners[1].port"],
        ),
        (Config(), Config(listeners=(ListenerOptions(), ListenerOptions(port=2))), ["listeners"]),
        (
            Config(listeners=(ListenerOptions(),)),
            Config(listeners=(ListenerOptions(tls=TlsOptions("a", "b")),)),
            ["listeners[0].tls"],
        ),
        (
            Config(listeners=(ListenerOptions(tls=TlsOptions("a", "b")),)),
            Config(listeners=(ListenerOptions(tls=TlsOptions("a", "c")),)),
            ["listeners[0].tls.key_file"],
        ),
    ],
)
def test_changed_options_are_named_by_their_paths(former: Config, new: Config, changed: list[str]) -> None:
    assert changed_options(former, new) == changed


@pytest.mark.parametrize(
    ("listeners", "option", "lets"),
    [
        ((ListenerOptions(host="127.0.0.1"), ListenerOptions(path="/run/mqtt.sock")), None, True),
        ((ListenerOptions(host="127.0.0.1"), ListenerOptions(host="")), None, False),
        ((ListenerOptions(host=""),), True, True),
        ((ListenerOptions(host="::1"),), False, False),
    ],
)
def test_bridges_tell_their_state_without_rules_where_only_this_machine_connects_or_the_option_says_so(
    listeners: tuple[ListenerOptions, ...], option: bool | None, lets: bool
) -> None:
    assert lets_bridges(Config(listeners=listeners, sys=SysOptions(bridges=option))) is lets
