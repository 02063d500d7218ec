"""The benchmark of queues works, with little of everything."""

import asyncio
from pathlib import Path

import pytest

from bench import queues
from bench.counting import NotMeasured

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_each_case_of_throughput_and_many_queues_says_what_it_measured() -> None:
    said: list[str] = []
    plan = queues.Plan(messages=1_000, queues=10, filtered=20)
    asyncio.run(queues.measure(ROOT, plan, ("deliver", "pull", "many"), said.append))
    assert [each.split(":")[0] for each in said] == [
        "8 consumers, while they are published",
        "8 consumers, from a backlog",
        "4 pullers",
        "10 queues",
        "20 queues with filters",
        "20 queues with filters, nobody there",
    ]


def test_a_case_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(source: Path, plan: queues.Plan, say: queues.Say) -> None:
        await asyncio.Event().wait()

    monkeypatch.setitem(queues.CASES, "never", never)
    monkeypatch.setattr(queues, "LIMIT_S", 0.01)
    with pytest.raises(NotMeasured, match="never took more than"):
        asyncio.run(queues.measure(ROOT, queues.Plan(), ("never",), print))
