"""Users, topics and rules that operators change over HTTP at three nodes, which are killed, and so is NATS."""

import asyncio
import contextlib
import shutil
from pathlib import Path

import httpx
import pytest

from mqttlite.security.api_keys import FILE_NAME, add
from mqttlite.security.topic_file import load
from tests.faults.test_bridges_killed import LATEST_S
from tests.faults.test_nodes_killed import SEEDS, Trouble

pytestmark = pytest.mark.slow

HEAD = """
password_file = "{folder}/{{node}}/users"
acl_file = "{folder}/{{node}}/rules"
"""
MORE = "[http]\nport = {http}\n"
NODES = "abc"
PAUSE_S = 0.05


def prepare(folder: Path) -> str:
    """The files with which each node begins; a key of an admin."""
    key, _ = add(folder / FILE_NAME, "admin", "admin", None)
    for node in NODES:
        (folder / node).mkdir()
        shutil.copy(folder / FILE_NAME, folder / node)
        (folder / node / "users").write_text("")
        (folder / node / "rules").write_text(rules_of(0))
    return key


def rules_of(number: int) -> str:
    return f"user u\ntopic read t/{number}\n"


class Maker:
    """An operator at one node."""

    def __init__(self, name: str, port: int, key: str) -> None:
        self.name = name
        self.users: set[str] = set()
        self.topics: set[str] = set()
        self.rules = 0
        """The latest that were acknowledged."""
        self._base = f"http://127.0.0.1:{port}/api/v1"
        self._headers = {"Authorization": f"Bearer {key}"}

    async def run(self, is_over: asyncio.Event) -> None:
        """Make users and topics, one after the other, and the first operator rules; note what is acknowledged."""
        number = 0
        async with httpx.AsyncClient(headers=self._headers, timeout=15.0) as client:
            while not is_over.is_set():
                number += 1
                user, topic = f"{self.name}{number}", f"{self.name}/{number}"
                with contextlib.suppress(httpx.HTTPError):
                    answer = await client.put(f"{self._base}/users/{user}", json={"password": "x" * 12})
                    self.users |= {user} if answer.status_code == 200 else set()
                    answer = await client.post(f"{self._base}/topics", json={"name": topic})
                    self.topics |= {topic} if answer.status_code == 201 else set()
                    if self.name == NODES[0]:
                        answer = await client.put(f"{self._base}/acl/text", content=rules_of(number))
                        self.rules = number if answer.status_code == 200 else self.rules
                await asyncio.sleep(PAUSE_S)


class Files:
    """What the files of a node have."""

    def __init__(self, folder: Path) -> None:
        self.users = {line.partition(":")[0] for line in (folder / "users").read_text().splitlines()}
        self.topics = {each.name for each in load(folder / "topics.json")}
        self.rules = int((folder / "rules").read_text().rpartition("/")[2])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Files) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{len(self.users)} users, {len(self.topics)} topics, rules {self.rules}"


@pytest.mark.parametrize("seed", SEEDS)
async def test_users_topics_and_rules_are_the_same_at_all_nodes_whatever_was_killed(tmp_path: Path, seed: int) -> None:
    key = prepare(tmp_path)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(300):
        trouble = Trouble(tmp_path, stack, seed, MORE, HEAD.format(folder=tmp_path))
        await trouble.start()
        is_over = asyncio.Event()
        makers = [Maker(name, port, key) for name, port in zip(NODES, trouble.http, strict=True)]
        making = [asyncio.create_task(each.run(is_over)) for each in makers]
        await trouble.go_on()
        is_over.set()
        await asyncio.gather(*making)
        users = set().union(*(each.users for each in makers))
        topics = set().union(*(each.topics for each in makers))
        assert all(each.users and each.topics for each in makers)
        assert makers[0].rules
        give_up_at = asyncio.get_running_loop().time() + LATEST_S
        while True:
            a, b, c = found = [Files(tmp_path / node) for node in NODES]
            if a == b == c and users <= a.users and topics <= a.topics and a.rules >= makers[0].rules:
                break
            assert asyncio.get_running_loop().time() < give_up_at, (found, users - a.users, topics - a.topics)
            await asyncio.sleep(0.2)
        print(
            f"{len(users)} users, {len(topics)} topics, rules {makers[0].rules} were acknowledged; {a} are everywhere"
        )
