"""A process with an idempotent handler is killed, again and again, and its messages come again to the next one."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MESSAGES = 200
KILLS = 2

PROGRAM = f"""
import asyncio, os, sys
from mqttlite.client import IdempotentHandler, Message, Properties, SqliteSeen

handled, returned = (os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for path in sys.argv[2:4])


async def handle(message):
    os.write(handled, message.payload + b"\\n")


async def main():
    handler = IdempotentHandler(handle, SqliteSeen(sys.argv[1]), lease=0.2)
    for number in range({MESSAGES}):
        properties = Properties(user_properties=[("message-id", str(number))])
        await handler(Message("a", str(number).encode(), properties=properties))
        os.write(returned, b"%d\\n" % number)


asyncio.run(main())
"""


def numbers(path: Path) -> Counter[int]:
    return Counter(int(line) for line in path.read_text().split()) if path.exists() else Counter()


def test_a_handled_message_is_not_handled_again_after_a_kill(tmp_path: Path) -> None:
    """But for a message whose handler had returned, and which was not marked yet: one for each kill at the most."""
    handled, returned = tmp_path / "handled", tmp_path / "returned"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "seen.db"), str(handled), str(returned)]
    rng = random.Random(7)
    for _ in range(KILLS):
        wanted = min(len(numbers(handled)) + rng.randint(5, 60), MESSAGES - 1)
        process = subprocess.Popen(command)
        try:
            while len(numbers(handled)) < wanted and process.poll() is None:
                time.sleep(rng.random() / 200)
        finally:
            process.kill()
            process.wait()
        assert set(numbers(returned)) <= set(numbers(handled))
    subprocess.run(command, check=True, timeout=60)
    found = numbers(handled)
    assert sorted(found) == list(range(MESSAGES))
    assert sum(found.values()) - MESSAGES <= KILLS
