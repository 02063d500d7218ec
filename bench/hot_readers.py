"""Thousands of subscribers of one topic at one broker, in a process: `python -m bench.hot_readers PORT COUNT SIZE`.

It prints a line when all are subscribed, and for each message that all have got, when the last one had it, in
nanoseconds of CLOCK_MONOTONIC. Invariant: a message counts when each subscriber has its last byte.
"""

import select
import socket
import struct
import sys
import time
from typing import Final

from bench.hot_packets import TOPIC, packet, text

AT_ONCE: Final = 100
"""Subscribers that connect at the same time: more would be an overload."""

READ_BYTES: Final = 65_536

CONNACK_AND_SUBACK: Final = 4 + 5


def connected(port: int, name: str) -> socket.socket:
    """A connection that has asked for everything."""
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connect = packet(0x10, text("MQTT") + b"\4\2" + struct.pack(">H", 0) + text(name))
    made.sendall(connect + packet(0x82, b"\0\1" + text(TOPIC) + b"\0"))
    return made


def subscribe(port: int, count: int) -> dict[int, socket.socket]:
    """That many subscribers, by the numbers of their descriptors."""
    made: dict[int, socket.socket] = {}
    for start in range(0, count, AT_ONCE):
        some = [connected(port, f"reader-{port}-{number}") for number in range(start, min(start + AT_ONCE, count))]
        for each in some:
            left = CONNACK_AND_SUBACK
            while left:
                left -= len(each.recv(left)) or sys.exit(f"port {port}: the broker closed a connection")
            each.setblocking(False)
        made |= {each.fileno(): each for each in some}
    return made


def main(port: int, count: int, size: int) -> None:
    """Until the broker or the caller ends it. `size` is that of a PUBLISH."""
    readers = subscribe(port, count)
    poll = select.epoll(count)
    for number in readers:
        poll.register(number, select.EPOLLIN)
    print("subscribed", flush=True)
    left = count * size
    while True:
        for number, _ in poll.poll(-1, 1_000):
            data = readers[number].recv(READ_BYTES)
            if not data:
                return
            left -= len(data)
        if left <= 0:
            print(time.monotonic_ns(), flush=True)
            left += count * size


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
