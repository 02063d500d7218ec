"""`mqttlite serve`: the flags of WebSocket and Unix sockets. No broker runs here."""

import pytest
from click.testing import CliRunner

from mqttlite.cli import check, serve
from mqttlite.config import Config, ConfigError, ListenerOptions, parse_config
from mqttlite.net.proxy_protocol import ProxyOptions
from mqttlite.net.upgrade import WebSocketOptions
from mqttlite.security.tls import TlsOptions

FILES = ("--cert", "c.crt", "--key", "c.key")
TLS = TlsOptions("c.crt", "c.key")
WEB = WebSocketOptions()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--ws-port", "8083"), [ListenerOptions(port=8083, websocket=WEB)]),
        (
            ("--host", "0.0.0.0", "--allow-anonymous", "--ws-port", "8083"),
            [ListenerOptions(host="0.0.0.0", port=8083, websocket=WEB)],
        ),
        (("--wss-port", "8084", *FILES), [ListenerOptions(port=8084, tls=TLS, websocket=WEB)]),
        (
            ("--ws-port", "1", "--ws-origin", "https://a.example", "--ws-origin", "*"),
            [ListenerOptions(port=1, websocket=WebSocketOptions(origins=("https://a.example", "*")))],
        ),
        (("--socket", "x.sock"), [ListenerOptions(path="x.sock")]),
        (
            ("--socket", "x.sock", "--wss-port", "4", "--ws-port", "3", "--tls-port", "2", "--port", "1", *FILES),
            [
                ListenerOptions(port=1),
                ListenerOptions(port=2, tls=TLS),
                ListenerOptions(port=3, websocket=WEB),
                ListenerOptions(port=4, tls=TLS, websocket=WEB),
                ListenerOptions(path="x.sock"),
            ],
        ),
    ],
)
def test_flags_are_listeners(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: list[ListenerOptions]
) -> None:
    configs: list[Config] = []
    monkeypatch.setattr(serve, "_run", lambda config, _keylog, _source: configs.append(config))
    monkeypatch.setattr(serve, "_allow_many_files", lambda: None)
    monkeypatch.setattr(check, "file_problems", lambda _config: [])
    result = CliRunner().invoke(serve.command, list(arguments))
    assert result.exit_code == 0, result.output
    assert [list(config.listeners) for config in configs] == [expected]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--wss-port", "8084"), "--wss-port needs --cert and --key"),
        (("--ws-port", "8083", "--cert", "a"), "belong to --tls-port, which is missing, or to --wss-port"),
        (("--ws-origin", "https://a.example"), "--ws-origin belongs to --ws-port or --wss-port, which is missing"),
        (("--ws-port", "8083", "--ws-origin", "a.example"), "--ws-origin: origins has 'a.example': an origin is like"),
    ],
)
def test_flags_that_do_not_fit_are_exit_code_2_and_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(serve.command, list(arguments))
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_file_says_the_same_and_more() -> None:
    config = parse_config(
        {
            "listeners": [
                {"port": 8083, "websocket": True},
                {"port": 8084, "websocket": {"path": "/", "origins": ["https://a.example"]}},
                {"path": "/run/mqttlite.sock", "mode": 0o600},
                {"name": "lb", "proxy_protocol": {"trusted": ["10.0.0.0/8"]}},
            ]
        }
    )
    web, pages, unix, proxied = config.listeners
    assert web.websocket_options() == WEB
    assert pages.websocket_options() == WebSocketOptions(path="/", origins=("https://a.example",))
    assert unix.websocket_options() is None
    assert proxied.proxy_protocol == ProxyOptions(trusted=("10.0.0.0/8",))
    assert [each.title() for each in config.listeners] == ["ws-8083", "ws-8084", "unix-mqttlite.sock", "lb"]


@pytest.mark.parametrize(
    ("websocket", "said"),
    [
        ({"path": "mqtt"}, r"listeners\[0\]\.websocket\.path is 'mqtt'"),
        ({"origins": ["a.example"]}, r"listeners\[0\]\.websocket\.origins has 'a\.example'"),
        ({"origin": ["*"]}, r"listeners\[0\]\.websocket\.origin is unknown; did you mean origins\?"),
        ("yes", r"listeners\[0\]\.websocket must be true or false or a section, not the text \"yes\"; write true"),
    ],
)
def test_a_file_that_is_wrong_says_where(websocket: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_config({"listeners": [{"websocket": websocket}]})
