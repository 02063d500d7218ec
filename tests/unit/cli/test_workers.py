"""How the processes of a broker are started, spoken to and waited for."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqttlite.cli import workers
from mqttlite.cli.workers import reserved, run, workers_of
from mqttlite.cluster import membership, processors
from mqttlite.cluster.membership import MAX_WORKERS, Membership, memberships
from mqttlite.config import Config, ConfigError, ListenerOptions, parse_config
from mqttlite.net.endpoints import CannotListen

HERE = Config(listeners=(ListenerOptions(port=0),))


@pytest.fixture(autouse=True)
def nobody_handles_sigterm() -> Iterator[None]:
    """As in a new process. A loop that was closed may have left its handler, which would take a worker's signal."""
    former = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, former)


# ---------------------------------------------------------------------- how many


@pytest.mark.parametrize("count", [1, 2, MAX_WORKERS])
def test_a_number_is_that_many(count: int) -> None:
    assert workers_of(Config(workers=count)) == count
    assert workers_of(parse_config({"workers": count})) == count


@pytest.mark.parametrize("value", [0, MAX_WORKERS + 1, -1, "many", 1.5, True])
def test_what_is_no_number_of_workers_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="workers"):
        parse_config({"workers": value})


def test_auto_is_one_for_each_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "OWN_CGROUPS", tmp_path / "none")  # there may be a quota where this runs
    config = parse_config({"workers": "auto"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 3, 5}, raising=False)
    assert workers_of(config) == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert workers_of(config) == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert workers_of(config) == 1


def test_where_there_cannot_be_several_auto_is_one_and_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "processors", lambda: 4)
    monkeypatch.delattr(membership.os, "fork")
    assert workers_of(Config(workers="auto")) == 1
    assert workers_of(Config(workers=1)) == 1
    with pytest.raises(ConfigError, match=r"workers is 2: this system cannot .*; it may be 1"):
        workers_of(Config(workers=2))


# ---------------------------------------------------------------------- their ports


def test_a_port_that_the_system_chooses_is_ours_meanwhile() -> None:
    listeners = (ListenerOptions(port=0), ListenerOptions(port=0, host="localhost"), ListenerOptions(path="/x.sock"))
    with reserved(Config(listeners=listeners)) as config:
        first, second, third = config.listeners
        assert first.port != second.port
        assert third.port == listeners[2].port
        for port in (first.port, second.port):
            with pytest.raises(OSError, match="in use"), socket.socket() as other:
                other.bind(("127.0.0.1", port))
    with socket.socket() as other:
        other.bind(("127.0.0.1", first.port))


def test_a_port_that_somebody_listens_on_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match="the port is in use"), reserved(port_of(port)):
            pass
    with reserved(port_of(port)) as config:
        assert config.listeners[0].port == port


@pytest.mark.parametrize(
    ("host", "says"), [("192.0.2.1", "no such address"), ("no.such.host.invalid", "cannot be resolved")]
)
def test_a_host_that_is_not_ours_or_nobody_s_is_a_sentence(host: str, says: str) -> None:
    config = Config(listeners=(ListenerOptions(port=0, host=host),))
    with pytest.raises(CannotListen, match=rf"cannot listen on {host}:0 .*{says}"), reserved(config):
        pass


def port_of(port: int) -> Config:
    return Config(listeners=(ListenerOptions(port=port),))


# ---------------------------------------------------------------------- their places


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_place_is_connected_with_every_other(count: int) -> None:
    places = memberships(count)
    for place in places:
        others = set(range(count)) - {place.index}
        for channel in ("fabric", "handoff"):
            sockets = getattr(place, channel)
            assert set(sockets) == others
            for other in others:
                sockets[other].send(b"%d" % place.index)
    for place in places:
        for sock_of in (place.fabric, place.handoff):
            assert all(sock.recv(10) == b"%d" % other for other, sock in sock_of.items())
        place.close()


# ---------------------------------------------------------------------- their ends


def ends_with(codes: dict[int, int]) -> Callable[[Config, Membership], int]:
    """Workers that end with these codes, whatever they are told, and the others when they are told to."""

    def serve(_config: Config, place: Membership) -> int:
        if place.index in codes:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            meet({other: sock for other, sock in place.fabric.items() if other in codes})
            return codes[place.index]
        return wait_for_signal()

    return serve


def wait_for_signal() -> int:
    got: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: got.append(number))
    deadline = time.monotonic() + 10
    while not got and time.monotonic() < deadline:
        time.sleep(0.01)
    return 0 if got else 9


def meet(others: dict[int, socket.socket]) -> None:
    """Let workers come to the same point: who ends first ends the others."""
    for other in others.values():
        other.send(b"ready")
    for other in others.values():
        other.setblocking(True)
        assert other.recv(5) == b"ready"


@pytest.mark.parametrize(
    ("codes", "code"), [({0: 0, 1: 0, 2: 0}, 0), ({0: 0}, 0), ({1: 1}, 1), ({2: 2}, 2), ({0: 0, 1: 7}, 7)]
)
def test_the_exit_code_is_that_of_one_that_failed(codes: dict[int, int], code: int) -> None:
    assert run(HERE, 3, ends_with(codes)) == code


@pytest.mark.parametrize(("raised", "code"), [(SystemExit(3), 3), (SystemExit("sentence"), 1), (SystemExit(None), 1)])
def test_a_worker_may_leave_by_an_exit(raised: SystemExit, code: int) -> None:
    def serve(_config: Config, _place: Membership) -> int:
        raise raised

    assert run(HERE, 2, serve) == code


def test_one_that_is_killed_ends_them_all_with_1() -> None:
    def serve(_config: Config, place: Membership) -> int:
        if place.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return wait_for_signal()

    assert run(HERE, 3, serve) == 1


def test_each_has_its_place_and_the_port_that_was_found(tmp_path: Path) -> None:
    def serve(config: Config, place: Membership) -> int:
        (tmp_path / str(place.index)).write_text(f"{place.count} {config.listeners[0].port} {sorted(place.fabric)}")
        meet(place.fabric)
        assert place.lifeline is not None
        place.lifeline.setblocking(False)
        try:
            place.lifeline.recv(1)
        except BlockingIOError:  # its other end is open, and in no worker
            return 0
        return 1

    assert run(HERE, 2, serve) == 0
    told = [(tmp_path / str(index)).read_text().split(" ", 2) for index in range(2)]
    assert told[0][1] == told[1][1] != "0"
    assert [(count, others) for count, _port, others in told] == [("2", "[1]"), ("2", "[0]")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_passed_on_and_our_handlers_come_back(number: signal.Signals) -> None:
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    former = {each: signal.getsignal(each) for each in handled}
    parent = os.getpid()

    def serve(_config: Config, place: Membership) -> int:
        got: list[int] = []
        for each in handled:
            signal.signal(each, lambda number, _frame: got.append(number))
        meet(place.fabric)
        deadline = time.monotonic() + 10
        while not got and time.monotonic() < deadline:
            if place.index == 0:  # again, for the parent may not have waited yet
                os.kill(parent, number)
            time.sleep(0.01)
        return 0 if got[:1] == [number] else 9

    signal.signal(number, signal.SIG_IGN)
    try:
        assert run(HERE, 2, serve) == 0
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, former[number])
    assert {each: signal.getsignal(each) for each in handled} == former


def test_one_that_has_sent_its_clients_away_leaves_the_others_their_time() -> None:
    parent = os.getpid()

    def serve(_config: Config, place: Membership) -> int:
        got: list[int] = []
        for each in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(each, lambda number, _frame: got.append(number))
        meet(place.fabric)
        while signal.SIGUSR1 not in got:
            if place.index == 0:
                os.kill(parent, signal.SIGUSR1)
            time.sleep(0.01)
        if place.index == 0:
            return 0
        place.fabric[0].recv(5)  # the other is gone
        time.sleep(0.2)
        return 9 if signal.SIGTERM in got else 0

    former = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert run(HERE, 2, serve) == 0
    finally:
        signal.signal(signal.SIGUSR1, former)
