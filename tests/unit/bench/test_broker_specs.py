"""What `--broker` takes, and how a broker that does not come up says so."""

import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.brokers import Broker, BrokerError, Spec, free_port, parse
from bench.cases import CASES

ENDS_AT_ONCE = "import sys; sys.stderr.write('first\\nno licence\\n'); sys.exit(3)"
LISTENS = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("m=1883", Spec("m", "127.0.0.1", 1883)),
        ("m=127.0.0.2:1883", Spec("m", "127.0.0.2", 1883)),
        ("m-2.1=1884=my-broker -p 1884", Spec("m-2.1", "127.0.0.1", 1884, ("my-broker", "-p", "1884"))),
        ("m=1884=run --port={port} 'a b'", Spec("m", "127.0.0.1", 1884, ("run", "--port=1884", "a b"))),
        ("m=1884=run A=b", Spec("m", "127.0.0.1", 1884, ("run", "A=b"))),
    ],
)
def test_a_spec_is_a_name_an_address_and_perhaps_a_command(text: str, spec: Spec) -> None:
    assert parse(text) == spec


def test_a_host_may_have_a_name() -> None:
    assert parse("m=localhost:1883").host == "127.0.0.1"


def test_port_0_is_a_free_one_that_the_command_is_told() -> None:
    spec = parse("m=0=run --port {port}")
    assert 20000 <= spec.port < 32000
    assert spec.command == ("run", "--port", str(spec.port))


@pytest.mark.parametrize(
    "text",
    ["", "m", "=1883", "m=", "m=x", "m=65536", "m=-1", "m=²", "a b=1883", "m=0", "m=0=run", "m=1883=run 'unclosed"],
)
def test_anything_else_is_refused_with_what_was_written(text: str) -> None:
    with pytest.raises(BrokerError, match="^" + repr(text)[0]):
        parse(text)


def test_a_free_port_can_be_bound_and_lies_below_outgoing_connections() -> None:
    port = free_port()
    assert 20000 <= port < 32000
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


def test_a_command_that_takes_a_tls_port_gets_one_more() -> None:
    spec = parse("m=0=run --port {port} --tls {tls_port}")
    assert spec.tls_port is not None
    assert spec.command == ("run", "--port", str(spec.port), "--tls", str(spec.tls_port))


@pytest.mark.long
def test_a_broker_without_tls_is_spared_the_cases_over_it(tmp_path: Path) -> None:
    plain, secure = CASES["pingpong"], CASES["tls-connect-1000"]
    without = Broker(Spec("m", "127.0.0.1", 1883), tmp_path)
    assert (without.carries(plain), without.carries(secure)) == (True, False)
    both = Broker(Spec("m", "127.0.0.1", 1, tls_port=2), tmp_path)
    assert both.carries(secure)
    assert (both.arguments(plain)[3], both.arguments(secure)[3]) == ("1", "2")


def test_a_broker_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    spec = Spec("rude", "127.0.0.1", free_port(), (sys.executable, "-c", ENDS_AT_ONCE))
    with pytest.raises(BrokerError, match=r"rude ended at once \(exit 3\): no licence"):
        Broker(spec, tmp_path).ready()


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"absent: .*no-such-broker"):
        Broker(Spec("absent", "127.0.0.1", free_port(), ("no-such-broker",)), tmp_path).ready()


@pytest.mark.slow
def test_a_broker_is_started_held_and_stopped_and_known_by_its_port(tmp_path: Path) -> None:
    port = free_port()
    broker = Broker(Spec("b", "127.0.0.1", port, (sys.executable, "-c", LISTENS, str(port))), tmp_path)
    assert broker.pids() == ()
    broker.ready()
    try:
        (pid,) = broker.pids()
        assert broker.arguments(CASES["pingpong"]) == ("--host", "127.0.0.1", "--port", str(port), "--pid", str(pid))
        broker.hold()
        broker.ready()
        assert broker.pids() == (pid,)
        broker.hold()
    finally:
        broker.stop()
    assert broker.pids() == ()
    broker.stop()  # a second time is harmless


@pytest.mark.slow
def test_a_broker_loses_what_it_keeps_only_when_it_is_told_to(tmp_path: Path) -> None:
    port, data = free_port(), tmp_path / "data"
    broker = Broker(Spec("b", "127.0.0.1", port, (sys.executable, "-c", LISTENS, str(port)), data=data), tmp_path)
    broker.ready()
    try:
        (data / "kept").write_bytes(b"x" * 10)
        before = broker.pids()
        option, since = broker.restart()
        assert (option, int(since) > 0) == ("--since", True)
        assert broker.pids() != before
        assert broker.disk_bytes() == 10
    finally:
        broker.stop()
    broker.forget()
    assert broker.disk_bytes() == 0


def test_only_a_broker_that_keeps_something_is_started_again(tmp_path: Path) -> None:
    spec = Spec("m", "127.0.0.1", 1883)
    assert not Broker(spec, tmp_path).carries(CASES["restart-1M"])
    assert Broker(replace(spec, data=tmp_path), tmp_path).carries(CASES["restart-1M"])
    with pytest.raises(BrokerError, match="m was not started here"):
        Broker(spec, tmp_path).restart()


def test_a_broker_that_runs_already_is_neither_started_nor_stopped(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = Broker(Spec("theirs", "127.0.0.1", listener.getsockname()[1]), tmp_path)
        broker.ready()
        broker.hold()
        broker.stop()
        assert broker.version() == f"at 127.0.0.1:{broker.spec.port}"
        assert broker.pids()
