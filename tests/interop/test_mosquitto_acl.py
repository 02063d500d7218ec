"""Mosquitto as the oracle of its ACL files: both read the same random files, and clients ask both about publishing.

Left out is what differs on purpose: groups, `$SYS`, and names with a slash in patterns.
"""

import asyncio
import getpass
import random
import shutil
import socket
from pathlib import Path

import pytest

from mqttlite.security.acl_file import load
from mqttlite.security.rules import Rules
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Ack
from tests.support.device import Device

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
NOT_AUTHORIZED = 0x87
CLIENTS = ((None, "c1"), ("ann", "c1"), ("bob", "a"), ("ann", "x+y"), ("carl", "b"))
TOPICS = [f"{one}{two}" for one in ("a", "b", "ann", "c1") for two in ("", "/a", "/b", "/ann", "/c1", "/a/b", "/z/z")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MOSQUITTO is None, reason="the broker mosquitto is not installed"),
]


def random_acl(dice: random.Random) -> str:
    def rule(word: str, names: tuple[str, ...]) -> str:
        levels = [dice.choice(("a", "b", "+", *names)) for _ in range(dice.randint(1, 2))]
        levels += dice.choice(([], ["#"]))
        return f"{word} {dice.choice(('', 'read ', 'write ', 'readwrite ', 'deny ', 'write '))}{'/'.join(levels)}"

    lines = [rule("topic", ()) for _ in range(dice.randint(0, 3))]
    for user in ("ann", "bob"):
        if dice.random() < 0.8:
            lines += [f"user {user}", *(rule("topic", ()) for _ in range(dice.randint(0, 4)))]
        lines += [rule("pattern", ("%u", "%c")) for _ in range(dice.randint(0, 1))]
    return "\n".join([*lines, ""])


async def mosquitto(folder: Path) -> tuple[asyncio.subprocess.Process, int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    path = folder / "mosquitto.conf"
    path.write_text(
        # As root it would change to a user that may not read the folder.
        f"user {getpass.getuser()}\nlistener {port} 127.0.0.1\nallow_anonymous true\nacl_file {folder / 'acl.conf'}\n"
    )
    assert MOSQUITTO is not None
    process = await asyncio.create_subprocess_exec(
        *(MOSQUITTO, "-c", str(path)), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                assert process.returncode is None, "it does not start"
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return process, port


@pytest.mark.parametrize("seed", range(12))
async def test_mosquitto_gives_the_same_verdicts(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "acl.conf"
    path.write_text(random_acl(random.Random(seed)))
    rules = Rules(load(path))
    process, port = await mosquitto(tmp_path)
    try:
        for username, client_id in CLIENTS:
            device = await Device.dial(port, V5)
            await device.connect(client_id, username=username)
            role = rules.role_of(client_id, username)
            for topic in TOPICS:
                device.publish(topic, b"", 1)
                is_allowed = (await device.expect(Ack)).reason_code != NOT_AUTHORIZED
                assert rules.may_publish(role, topic.encode()) == is_allowed, (path.read_text(), username, topic)
            await device.close()
    finally:
        process.terminate()
        await process.wait()
