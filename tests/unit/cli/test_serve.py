"""`mqttlite serve`: what its flags ask for, and what it says of those that do not fit. No broker runs here."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli import check, serve
from mqttlite.config import Config
from mqttlite.security.certificates import init
from mqttlite.server import Broker


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configs of the brokers that would have run."""
    configs: list[Config] = []
    monkeypatch.setattr(serve, "_run", lambda config, _keylog, _source: configs.append(config))
    monkeypatch.setattr(serve, "_allow_many_files", lambda: None)
    monkeypatch.setattr(check, "file_problems", lambda _config: [])
    return configs


def run(*arguments: str) -> Result:
    return CliRunner().invoke(serve.command, list(arguments))


def sentence(result: Result) -> str:
    return result.stderr.splitlines()[-1]


def listeners(config: Config) -> list[tuple[str, int, bool]]:
    return [(each.host, each.port, each.tls is not None) for each in config.listeners]


TLS = ("--tls-port", "8883", "--cert", "c.crt", "--key", "c.key")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), [("127.0.0.1", 1883, False)]),
        (("--port", "0"), [("127.0.0.1", 0, False)]),
        (("--host", "0.0.0.0", "--allow-anonymous"), [("0.0.0.0", 1883, False)]),
        (("--host", "::1", "--port", "1884"), [("::1", 1884, False)]),
        (TLS, [("127.0.0.1", 8883, True)]),
        (("--host", "0.0.0.0", "--allow-anonymous", *TLS), [("0.0.0.0", 8883, True)]),
        (("--port", "1883", *TLS), [("127.0.0.1", 1883, False), ("127.0.0.1", 8883, True)]),
    ],
)
def test_flags_are_listeners(asked: list[Config], arguments: tuple[str, ...], expected: list[Any]) -> None:
    assert run(*arguments).exit_code == 0
    assert [listeners(config) for config in asked] == [expected]


def test_flags_replace_the_listeners_of_the_file_and_leave_the_rest(asked: list[Config], tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("stop_timeout_s = 1.0\n[[listeners]]\nport = 1\n[limits]\nmax_inflight = 7\n")
    assert run("-c", str(file), "--port", "2", "--telemetry", str(tmp_path)).exit_code == 0
    (config,) = asked
    assert listeners(config) == [("127.0.0.1", 2, False)]
    assert (config.stop_timeout_s, config.limits.max_inflight) == (1.0, 7)
    assert config.telemetry is not None
    assert config.telemetry.directory == str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cert", "a"), "belong to --tls-port, which is missing"),
        (("--require-client-cert", "--port", "1"), "belong to --tls-port, which is missing"),
        (("--tls-port", "8883"), "--tls-port needs --cert and --key; 'mqttlite certs init' makes a set"),
        (("--tls-port", "8883", "--cert", "a"), "--tls-port needs --cert and --key"),
        (("-c", "/nowhere.toml"), "/nowhere.toml: cannot be read: No such file or directory"),
        (("-c", "/"), "/: cannot be read: Is a directory"),
        (("--port", "70000"), "'70000' must be a whole number from 0 to 65535."),
        (("--port", "x"), "'x' must be a whole number from 0 to 65535."),
        (("--frobnicate",), "--frobnicate"),
        (("extra",), "unexpected extra argument"),
    ],
)
def test_flags_that_do_not_fit_are_exit_code_2_and_a_sentence(
    asked: list[Config], arguments: tuple[str, ...], said: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in sentence(result)
    assert asked == []


def test_a_wrong_config_file_is_exit_code_2_with_file_line_and_place(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[limits]\nmax_inflight = 5\nmax_inflght = 6\n")
    result = run("-c", str(file))
    assert result.exit_code == 2
    assert sentence(result).endswith(f"{file}:3: limits.max_inflght is unknown; did you mean max_inflight?")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--cert": "nowhere.crt"}, "--cert: nowhere.crt: no such file"),
        ({"--key": "nowhere.key"}, "--key: nowhere.key: no such file"),
        ({"--key": "other.key"}, "other.key is not the key of"),
        ({"--cafile": "nowhere.crt"}, "--cafile: nowhere.crt: no such file"),
    ],
)
def test_tls_files_that_cannot_be_used_are_exit_code_2_and_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], said: str
) -> None:
    init(tmp_path, clients=["other"])
    monkeypatch.chdir(tmp_path)
    flags = {"--tls-port": "0", "--cert": "server.crt", "--key": "server.key"} | change
    result = run(*[word for pair in flags.items() for word in pair])
    assert result.exit_code == 2
    assert said in sentence(result)
    assert "Traceback" not in result.output


def test_a_certificate_that_may_not_be_read_is_exit_code_2_and_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(tmp_path)
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:  # root may read everything, so the mode of the file proves nothing
        if path.name == "server.crt":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    files = ("--cert", str(tmp_path / "server.crt"), "--key", str(tmp_path / "server.key"))
    result = run("--tls-port", "0", *files)
    assert result.exit_code == 2
    assert "--cert: " in sentence(result)
    assert "cannot be read: Permission denied" in sentence(result)


def test_without_uvloop_asyncio_runs_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    loop = serve._new_loop()
    try:
        assert type(loop).__module__.startswith("asyncio")
    finally:
        loop.close()


@pytest.mark.long
def test_an_address_that_cannot_be_had_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_allow_many_files", lambda: None)

    async def start(_broker: Broker) -> None:
        raise OSError("cannot listen on 127.0.0.1:1883 (tcp-1883): the port is in use")

    monkeypatch.setattr(Broker, "start", start)
    result = run("--log-level", "error")
    assert (result.exit_code, sentence(result)) == (
        1,
        "mqttlite serve: cannot listen on 127.0.0.1:1883 (tcp-1883): the port is in use",
    )


def test_keys_of_tls_are_logged_only_with_both_options() -> None:
    result = run("--tls-keylog", "keys", "--port", "0")
    assert result.exit_code == 2
    assert "--insecure-debug" in result.stderr
