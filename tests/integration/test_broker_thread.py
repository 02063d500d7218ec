"""A broker in a thread of its own, used by a program that is not asynchronous."""

import asyncio
import contextlib
import socket
import threading

import paho.mqtt.client as paho
import pytest

from mqttlite import Broker, Message
from mqttlite.net.loop_thread import LoopThread


def test_a_client_without_a_loop_uses_it() -> None:
    with Broker(port=0) as broker:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        arrived = threading.Event()
        client.on_message = lambda *_: arrived.set()
        client.on_subscribe = lambda *_: client.publish("a", "b")
        client.connect("127.0.0.1", broker.port)
        client.subscribe("a")
        client.loop_start()
        assert arrived.wait(5)
        client.disconnect()
        client.loop_stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "mqttlite"]


def test_the_program_publishes_and_subscribes() -> None:
    heard: list[bytes] = []
    enough = threading.Event()

    def hear(message: Message) -> None:
        heard.append(message.payload)
        enough.set()

    async def subscribe() -> None:
        broker.subscribe("a", hear)

    with Broker(port=0) as broker:
        broker.run(subscribe())
        assert broker.run(broker.publish("a", "1")) == 0
        assert enough.wait(5)
    assert heard == [b"1"]


async def test_it_runs_beside_a_loop_as_in_a_notebook() -> None:
    with Broker(port=0) as broker:
        assert broker.run(broker.publish("a")) == 0x10


def test_an_address_in_use_raises_and_leaves_no_thread() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        broker = Broker(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="the port is in use"), broker:
            pass
    assert not [thread for thread in threading.enumerate() if thread.name == "mqttlite"]


def test_a_broker_can_be_entered_again() -> None:
    broker = Broker(port=0)
    for _ in range(2):
        with broker:
            socket.create_connection(("127.0.0.1", broker.port)).close()


def test_run_needs_a_thread_of_the_broker() -> None:
    broker = Broker(port=0)
    with pytest.raises(RuntimeError, match="with Broker"):
        broker.run(broker.stop())


def test_run_on_the_thread_itself_would_wait_for_itself() -> None:
    async def inside() -> None:
        broker.run(broker.stop())

    with Broker(port=0) as broker, pytest.raises(RuntimeError, match="own thread"):
        broker.run(inside())


def test_an_exception_of_the_program_stops_the_broker() -> None:
    with pytest.raises(KeyError), Broker(port=0) as broker:
        raise KeyError
    with pytest.raises(OSError):  # noqa: PT011 - the system's own
        socket.create_connection(("127.0.0.1", broker.port))


def test_tasks_that_are_left_are_cancelled() -> None:
    thread = LoopThread("test")
    ended: list[bool] = []

    async def endless() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    async def begin() -> None:
        tasks.append(asyncio.get_running_loop().create_task(endless()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    thread.run(begin())
    thread.close()
    assert ended == [True]
