"""`mqttlite pub` and `mqttlite sub`: formats and properties as functions, the commands against a scripted broker."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from mqttlite.cli import pub, sub
from mqttlite.cli.output_format import NotJson, compile_format
from mqttlite.cli.property_options import gather_properties, read_properties
from mqttlite.client import Message, Properties
from mqttlite.config import Config, ListenerOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import NEVER_EXPIRES, PUBREL, V31, V311
from mqttlite.wire.packets import Ack, Connack, Connect, Disconnect, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from mqttlite.wire.reason_codes import ReasonCode
from tests.unit.client.fake_broker import Peer, broker, message

ROOT = Path(__file__).resolve().parents[3]
NOON = 1_700_000_000.25
MESSAGE = Message(
    "a/b",
    b'{"x":1}',
    qos=1,
    retain=True,
    packet_id=5,
    properties=Properties(
        content_type="json",
        user_properties=[("k", "v"), ("k2", "v2")],
        subscription_identifiers=[3, 4],
        correlation_data=b"cd",
        message_expiry_interval=60,
        response_topic="r",
    ),
)

# formats


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t|%p|%q|%r|%d|%l|%m", b'a/b|{"x":1}|1|1|0|7|5'),
        ("%x %X", b"7b2278223a317d 7B2278223A317D"),
        ("%C %D %E %R %S %P", b"json cd 60 r 3 4 k:v k2:v2"),
        ("%A%F", b""),
        ("100%% @@ \\\\ \\n\\t\\0\\e", b"100% @ \\ \n\t\0\x1b"),
        ("%6t|%-6t|%06l|%.3p|%6.1t", b"   a/b|a/b   |000007|" + b'{"x|     a'),
        ("%U @s @N", b"1700000000.250000000 1700000000 250000000"),
        ("ä", "ä".encode()),
        ("", b""),
    ],
)
def test_a_format_prints_its_fields(text: str, expected: bytes) -> None:
    assert compile_format(text)(MESSAGE, NOON) == expected


@pytest.mark.parametrize("text", ["%", "%5", "x@", "\\", "%z", "%5.2y", "\\q"])
def test_a_format_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the format"):
        compile_format(text)


def test_json_has_the_fields_of_mosquitto_sub() -> None:
    row = json.loads(compile_format("%j")(MESSAGE, NOON))
    assert row.pop("tst").startswith("2023-11-1")
    assert row == {
        "topic": "a/b",
        "qos": 1,
        "retain": 1,
        "payloadlen": 7,
        "mid": 5,
        "properties": {
            "user-properties": {"k": "v", "k2": "v2"},
            "message-expiry-interval": 60,
            "content-type": "json",
            "response-topic": "r",
            "correlation-data": "cd",
            "subscription-identifier": [3, 4],
        },
        "payload": '{"x":1}',
    }


def test_json_within_json_needs_json() -> None:
    piece = compile_format("%J")
    assert json.loads(piece(MESSAGE, NOON))["payload"] == {"x": 1}
    assert json.loads(piece(Message("a", b""), NOON))["payload"] is None
    for payload in (b"x", b"NaN", b"\xff"):
        with pytest.raises(NotJson, match="'a'"):
            piece(Message("a", payload), NOON)


# properties


@pytest.mark.parametrize(
    ("args", "gathered"),
    [
        (["-D", "publish", "content-type", "x", "-t", "a"], ["-D", "publish\0content-type\0x", "-t", "a"]),
        (["-D", "publish", "user-property", "k", "v", "-r"], ["-D", "publish\0user-property\0k\0v", "-r"]),
        (["-m", "-D", "-t", "a"], ["-m", "-D", "-t", "a"]),
        (["-rm", "-D"], ["-rm", "-D"]),
        (["-m-D", "--property", "will", "content-type", "x"], ["-m-D", "--property", "will\0content-type\0x"]),
        (["--", "-D"], ["--", "-D"]),
    ],
)
def test_the_words_of_a_property_are_found_among_the_others(args: list[str], gathered: list[str]) -> None:
    assert gather_properties(args, pub.command.params) == gathered


def test_a_property_with_too_few_words_is_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="two values"):
        gather_properties(["-D", "publish", "user-property", "k"], pub.command.params)


def test_properties_are_read_by_command() -> None:
    words = ["publish\0user-property\0a\0b", "publish\0user-property\0c\0d", "publish\0message-expiry-interval\x005"]
    given = read_properties([*words, "connect\0receive-maximum\x009"], ("connect", "publish"))
    assert given["publish"] == Properties(user_properties=[("a", "b"), ("c", "d")], message_expiry_interval=5)
    assert given["connect"] == Properties(receive_maximum=9)
    assert given["will"] == Properties()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("subscribe\0user-property\0a\0b", "there are properties for publish here"),
        ("publish\0nope\x005", "no property of that name"),
        ("publish\0receive-maximum\x005", "may not be in this packet"),
        ("publish\0message-expiry-interval\0soon", "soon"),
        ("publish\0message-expiry-interval\x00-1", "-1"),
    ],
)
def test_an_invalid_property_is_wrong_usage(words: str, why: str) -> None:
    with pytest.raises(click.UsageError, match=why):
        read_properties([words], ("publish",))


# usage


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ("pub -m x", "Where to?"),
        ("pub -t a", "What?"),
        ("pub -t a -m x -n", "What?"),
        ("pub -t a/# -m x", "has a wildcard"),
        ("pub -t a -l --repeat 2", "--repeat"),
        ("pub -t a -m x -f nowhere.txt", "does not exist"),
        ("pub -t a -m x -q 3", "not in the range"),
        ("pub -t a -m x -V 6", "no version of MQTT"),
        ("pub -t a -m x -x soon", "no number of seconds"),
        ("pub -t a -m x -i a -I b", "exclude each other"),
        ("pub -t a -m x -V 311 -D publish content-type x", "5.0 only"),
        ("pub -t a -m x -V 311 -x 5", "5.0 only"),
        ("pub -t a -m x --will-payload x", "--will-topic"),
        ("pub -t a -m x --will-topic a/+", "wildcard"),
        ("pub -t a -m x -c", "name it with -i"),
        ("pub -t a -m x --cafile nowhere.crt", "Error: nowhere.crt: no such file"),
        ("pub -L http://h/t -m x", "is no URL"),
        ("pub -L mqtt://h:x/t -m x", "is no URL"),
        ("pub -L mqtt://h/t -h h -m x", "leave -h out"),
        ("sub", "To what?"),
        ("sub -t a/#/b", "# may only be the last level"),
        ("sub -t a -F %z", "The format has %z"),
        ("sub -t a -R --retained-only", "exclude each other"),
        ("sub -t a -V 311 --retain-as-published", "5.0"),
        ("sub -t a -W 0", "not in the range"),
        ("sub -t a --where qos==1", "  qos==1\n      ^"),
    ],
)
def test_wrong_usage_is_said_with_exit_code_2(args: str, why: str) -> None:
    name, *rest = args.split()
    result = CliRunner().invoke({"pub": pub, "sub": sub}[name].command, rest)
    assert (result.exit_code, why in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("module", [pub, sub])
def test_the_help_lists_the_exit_codes(module: object) -> None:
    result = CliRunner().invoke(module.command, ["--help"])  # type: ignore[attr-defined]
    assert "Exit codes: 0," in result.output


# commands at a broker


async def invoke(name: str, port: int, *args: str, stdin: bytes = b"") -> Result:
    """Run a command in a thread; the script of the broker runs here."""
    command = {"pub": pub, "sub": sub}[name].command
    words = [*args, "-h", "127.0.0.1", "-p", str(port)]
    return await asyncio.to_thread(CliRunner().invoke, command, words, input=stdin)


@pytest.mark.parametrize("payload", ["-5", "--x", "-D", ""])
async def test_any_word_can_be_a_message(payload: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.next() == message("a", payload.encode())
        assert await peer.next() == Disconnect()

    async with broker(script) as port:
        assert (await invoke("pub", port, "-t", "a", "-m", payload)).exit_code == 0


async def test_a_publication_carries_its_flags() -> None:
    async def script(peer: Peer) -> None:
        connect = await peer.expect(Connect)
        assert (connect.client_id, connect.username, connect.password) == ("me", "u", b"p")
        assert (connect.clean_start, connect.keep_alive) == (False, 9)
        assert connect.properties == Properties(session_expiry_interval=NEVER_EXPIRES, receive_maximum=5)
        will = connect.will
        assert will is not None
        assert (will.topic, will.payload, will.qos, will.retain) == (b"w", b"gone", 1, True)
        assert will.properties == Properties(will_delay_interval=3)
        peer.send(Connack(False))
        properties = Properties(user_properties=[("k", "v")])
        for packet_id in (1, 2):
            assert await peer.next() == Publish(b"a", b"x", 2, True, packet_id=packet_id, properties=properties)
            peer.send(Ack(5, packet_id))
            assert await peer.ack(PUBREL)
            peer.send(Ack(7, packet_id))
        await peer.goodbye()

    args = shlex.split(
        "-t a -m x -q 2 -r -i me -u u -P p -c -k 9 --repeat 2 --repeat-delay 0.001 "
        "--will-topic w --will-payload gone --will-qos 1 --will-retain "
        "-D connect receive-maximum 5 -D publish user-property k v -D will will-delay-interval 3"
    )
    async with broker(script) as port:
        result = await invoke("pub", port, *args)
        assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize(("version", "level"), [("mqttv311", V311), ("31", V31)])
async def test_versions_have_the_names_of_mosquitto(version: str, level: int) -> None:
    async def script(peer: Peer) -> None:
        assert (await peer.welcome()).version == level
        await peer.goodbye()

    async with broker(script) as port:
        assert (await invoke("pub", port, "-t", "a", "-n", "-V", version)).exit_code == 0


async def test_a_url_says_it_all(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        connect = await peer.welcome()
        assert (connect.username, connect.password) == ("u", b"p@")
        assert await peer.next() == message("x/y", b"\x00\xff")
        await peer.goodbye()

    payload = tmp_path / "payload"
    payload.write_bytes(b"\x00\xff")
    async with broker(script) as port:
        args = ["-L", f"mqtt://u:p%40@127.0.0.1:{port}/x/y", "-f", str(payload)]
        assert (await asyncio.to_thread(CliRunner().invoke, pub.command, args)).exit_code == 0


async def test_standard_input_can_be_one_message() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        assert await peer.next() == message("a", b"one\ntwo\n")
        await peer.goodbye()

    async with broker(script) as port:
        assert (await invoke("pub", port, "-t", "a", "-s", stdin=b"one\ntwo\n")).exit_code == 0


async def test_a_refused_message_is_an_error_in_one_line() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.expect(Publish)
        peer.send(Ack(4, 1, ReasonCode.NOT_AUTHORIZED))
        await peer.goodbye()

    async with broker(script) as port:
        result = await invoke("pub", port, "-t", "a", "-n", "-q", "1")
        assert result.exit_code == 1
        assert result.stderr == "Error: The message to 'a' was refused: not authorized (0x87).\n"


async def test_quiet_says_nothing() -> None:
    result = await invoke("pub", 1, "-t", "a", "-n", "--quiet")
    assert (result.exit_code, result.output) == (1, "")


@pytest.mark.slow
async def test_lines_are_published_without_waiting_for_each() -> None:
    total = 3000

    async def script(peer: Peer) -> None:
        await peer.welcome()
        for n in range(1, 1001):  # the whole window before the first acknowledgement
            assert await peer.next() == message("a", str(n).encode(), 1, n)
        for n in range(1, 1001):
            peer.send(Ack(4, n, ReasonCode.QUOTA_EXCEEDED if n == 7 else 0))
        for _ in range(1001, total + 1):
            packet = await peer.expect(Publish)
            peer.send(Ack(4, packet.packet_id))
        await peer.goodbye()

    async with broker(script) as port:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mqttlite", "pub", "-h", "127.0.0.1", "-p", str(port), "-t", "a", "-q", "1", "-l"),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        lines = "\n".join(str(n) for n in range(1, total + 1))
        _out, errors = await program.communicate(lines.encode())
        assert errors.decode().splitlines() == ["Error: The message to 'a' was refused: quota exceeded (0x97)."]
        assert program.returncode == 1


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\n", b"\n", b"b"], [b"a", b"", b"b"]),
        ([b"a", b"b", b"c\nd"], [b"abc", b"d"]),
        ([], []),
    ],
)
async def test_lines_may_be_cut_anywhere(chunks: list[bytes], lines: list[bytes]) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    assert [line async for line in pub.split_lines(stream())] == lines


async def test_sub_prints_messages_until_the_count() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        subscribe = await peer.grant()
        assert [(r.topic_filter, r.qos) for r in subscribe.requests] == [(b"a/#", 1), (b"b", 1)]
        peer.send(message("a/x", b"1"), message("a/no", b"hidden"), message("b", b"\xff"), message("b", b"late"))
        await peer.goodbye()

    async with broker(script) as port:
        result = await invoke("sub", port, "-t", "a/#", "-t", "b", "-T", "a/no", "-q", "1", "-C", "2")
        assert (result.exit_code, result.stdout_bytes) == (0, b"1\n\xff\n")


@pytest.mark.parametrize(("version", "printed"), [("5", b"1\n3\n"), ("311", b"3\n")])
async def test_a_filter_is_asked_by_the_broker_and_by_us_where_it_cannot_know(version: str, printed: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        subscribe = await peer.grant()
        assert subscribe.properties.user_properties == ([("filter", "payload > 2")] if version == "5" else [])
        peer.send(message("a", b"1"), message("a", b"3"))
        await peer.goodbye()

    async with broker(script) as port:
        count = str(printed.count(b"\n"))
        result = await invoke("sub", port, "-V", version, "-t", "a", "--where", "payload > 2", "-C", count)
        assert (result.exit_code, result.stdout_bytes) == (0, printed)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-v"], b"a x\na (null)\n"),
        (["-N"], b"x"),
        (["-F", "%t=%p;", "-N"], b"a=x;a=;"),
    ],
)
async def test_sub_prints_as_it_is_told(args: list[str], expected: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("a", b"x"), message("a", b""))
        await peer.goodbye()

    async with broker(script) as port:
        result = await invoke("sub", port, "-t", "a", "-C", "2", *args)
        assert (result.exit_code, result.stdout_bytes) == (0, expected)


async def test_a_payload_that_is_not_json_is_said_and_the_next_is_printed() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("a", b"x"), message("a", b"[1]"))
        await peer.goodbye()

    async with broker(script) as port:
        result = await invoke("sub", port, "-t", "a", "-C", "2", "-F", "%J")
        assert result.stderr == "Error: The payload of the message to 'a' is not JSON.\n"
        assert json.loads(result.stdout)["payload"] == [1]


async def test_retained_messages_can_be_left_out_chosen_and_removed() -> None:
    async def left_out(peer: Peer) -> None:
        await peer.welcome()
        subscribe = await peer.grant()
        assert subscribe.requests[0].retain_handling == 2
        peer.send(Publish(b"a", b"old", retain=True), message("a", b"new"))
        await peer.goodbye()

    async def chosen(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(Publish(b"a", b"old", retain=True))
        assert await peer.next() == Publish(b"a", b"", 1, True, packet_id=2)
        peer.send(Ack(4, 2), message("a", b"new"))
        await peer.goodbye()

    async with broker(left_out, chosen) as port:
        assert (await invoke("sub", port, "-t", "a", "-R", "-C", "1")).stdout == "new\n"
        assert (await invoke("sub", port, "-t", "a", "--retained-only", "--remove-retained")).stdout == "old\n"


async def test_sub_exits_after_suback_or_when_time_is_up() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        unsubscribe = await peer.expect(Unsubscribe)
        peer.send(Unsuback(unsubscribe.packet_id, b"\0"))
        await peer.grant()
        assert await peer.next() == Disconnect()

    async with broker(script, script) as port:
        assert (await invoke("sub", port, "-t", "a", "-U", "b", "-E")).exit_code == 0
        result = await invoke("sub", port, "-t", "a", "-U", "b", "-W", "0.1")
        assert (result.exit_code, result.stderr) == (27, "Timed out.\n")


@pytest.mark.parametrize(("codes", "exit_code"), [([0x87, 0], 0), ([0x87, 0x87], 1)])
async def test_sub_fails_when_every_filter_is_refused(codes: list[int], exit_code: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        subscribe = await peer.expect(Subscribe)
        peer.send(Suback(subscribe.packet_id, bytes(codes)), message("b", b"x"))
        await peer.goodbye()

    async with broker(script) as port:
        result = await invoke("sub", port, "-t", "a", "-t", "b", "-C", "1")
        assert result.exit_code == exit_code
        assert "Error: The subscription to 'a' was refused: not authorized (0x87)." in result.stderr


async def test_a_lost_connection_is_said_and_made_again() -> None:
    async def first(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.drop()

    async def second(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("a", b"x"))
        await peer.goodbye()

    async with broker(first, second) as port:
        result = await invoke("sub", port, "-t", "a", "-C", "1", "-d")
        assert (result.exit_code, result.stdout) == (0, "x\n")
        assert "Trying again in" in result.stderr
        assert "Connected again." in result.stderr
        assert "Client sending SUBSCRIBE" in result.stderr


async def listening(port: int, **pipes: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", "sub", "-h", "127.0.0.1", "-p", str(port), "-t", "a"),
        cwd=ROOT,
        stdout=pipes.get("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_sub_politely(number: int, code: int) -> None:
    subscribed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        subscribed.set()
        assert await peer.next() == Disconnect()

    async with broker(script) as port:
        program = await listening(port)
        await subscribed.wait()
        await asyncio.sleep(0.05)
        program.send_signal(number)
        assert (await program.communicate())[1] == b""
        assert program.returncode == code


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has other pipes")
async def test_a_reader_that_leaves_ends_sub_silently() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.grant()
        peer.send(message("a", b"x"))
        await peer.goodbye()

    reading, writing = os.pipe()
    os.close(reading)
    async with broker(script) as port:
        program = await listening(port, stdout=writing)
        os.close(writing)
        assert (await program.communicate())[1] == b""
        assert program.returncode == 0


# Unix sockets


async def test_pub_and_sub_speak_over_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    async with Broker(Config(listeners=(ListenerOptions(path=path),))):
        arguments = ["--unix", path, "-t", "a", "-m", "hello", "-r", "-q", "1"]
        published = await asyncio.to_thread(CliRunner().invoke, pub.command, arguments)
        assert (published.exit_code, published.output) == (0, "")
        arguments = ["--unix", path, "-t", "a", "-C", "1"]
        printed = await asyncio.to_thread(CliRunner().invoke, sub.command, arguments)
        assert (printed.exit_code, printed.output) == (0, "hello\n")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "There is no Unix socket {path}; does a broker run with 'mqttlite serve --socket {path}'?"),
        (lambda path: path.touch(), "Nobody listens on {path}"),
    ],
)
def test_a_unix_socket_without_a_listener_is_named(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    path = tmp_path / "x.sock"
    make(path)
    result = CliRunner().invoke(pub.command, ["--unix", str(path), "-t", "a", "-m", "b"])
    assert result.exit_code == 1
    assert said.format(path=path) in result.stderr


@pytest.mark.parametrize("other", [("-h", "x"), ("-p", "5"), ("-L", "mqtt://x/t")])
def test_a_unix_socket_goes_with_no_host(other: tuple[str, str]) -> None:
    result = CliRunner().invoke(pub.command, ["--unix", "x.sock", *other, "-t", "a", "-m", "b"])
    assert (result.exit_code, "leave -h, -p and -L out" in result.stderr) == (2, True)
