"""Rows of the table in which a client comes back: to another machine of a cluster, whenever nobody else is connected
who has something to do yet."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from tests.conformance.script import Row
from tests.conformance.test_statements import cases, title
from tests.conformance.worlds import STEP, AuthChain, SocketStage, Wire, play
from tests.support.replicated import Succession

PATIENCE_S = 10.0


class MachinesStage(SocketStage):
    """Before a connection that is the only one still used, another machine begins to serve."""

    def __init__(self, row: Row, directory: Path) -> None:
        super().__init__(0, gated=row.gated)
        self.take_overs = 0
        self.follows: list[str] = []
        """The steps that follow the one that is done."""
        self._row = row
        self._machines = Succession(directory)
        self._serving = AsyncExitStack()

    async def end(self) -> None:
        await super().end()
        await self._serving.aclose()

    async def receive(self, link: str) -> bytes | None:
        """What waits in the database comes when it was read, perhaps behind the answer to a ping."""
        wire = self._links[link]
        async with asyncio.timeout(PATIENCE_S):
            while not wire.frames and not wire.closed:
                await asyncio.sleep(0.001)
                await wire.catch_up()
        return await super().receive(link)

    async def _open(self) -> Wire:
        used = {match[1] for step in self.follows if (match := STEP.match(step.strip()))}
        if all(each.closed or link not in used for link, each in self._links.items()):
            await self._take_over()
        return await super()._open()

    async def _take_over(self) -> None:
        await self._serving.aclose()
        row = self._row
        auth_chain = AuthChain() if row.gated else None
        config = Config(
            listeners=(ListenerOptions(port=0, capabilities=row.capabilities),), limits=row.limits, stop_timeout_s=0.1
        )
        store = await self._serving.enter_async_context(self._machines.next())
        broker = Broker(config, store=store, authenticator=auth_chain, method_authenticator=auth_chain)
        self._port = (await self._serving.enter_async_context(broker)).port
        self.take_overs += 1


def of_clients_that_come_back() -> list[tuple[Row, int]]:
    """Each in one version."""
    return [
        (row, version)
        for row, version in cases(waiting=False)
        if version == (V311 if V311 in row.versions else V5) and "back " in row.script
    ]


@pytest.mark.slow
async def test_a_client_that_comes_back_finds_at_another_machine_what_the_standard_promises(tmp_path: Path) -> None:
    rows = of_clients_that_come_back()
    take_overs, failed = 0, []
    for number, (row, version) in enumerate(rows):
        stage = MachinesStage(row, tmp_path / f"{number}")
        try:
            steps = row.script.splitlines()
            for at, step in enumerate(steps):
                stage.follows = steps[at + 1 :]
                await play(replace(row, script=step), version, stage)
        except AssertionError as error:
            failed.append(f"{title(row, version)}: {error}")
        finally:
            await stage.end()
        take_overs += stage.take_overs - 1
    assert not failed, "\n\n".join(failed)
    assert take_overs > len(rows) / 2
