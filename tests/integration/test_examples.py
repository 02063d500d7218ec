"""The programs of docs/examples against a broker with their configuration: each prints what it promises."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import pytest

from mqttlite.config import ListenerOptions, load_config
from mqttlite.server import Broker

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PATIENCE_S = 60.0

PRINTED = {
    "work_distribution.py": "20 jobs done by 2 workers\n",
    "worker_with_paho.py": "10 jobs done, the last one was page 9\n",
    "notifications.py": "mail to ann: your invoice\nmail to cleo: your parcel\nsms to bob: the door is open\n",
    "order_events.py": (
        "1001 created paid shipped\n1002 created shipped\n1003 created paid shipped\n"
        "dead letter: paid of orders/1002, 2 attempts\n"
    ),
    "partitioned_log.py": (
        "ann is in one partition: True; in order: True\nann: cart, ann: order, ann: payment\n"
        "bob is in one partition: True; in order: True\nbob: cart, bob: order, bob: payment\n"
        "after the restart, 1 offset on: ann: refund\n"
    ),
    "feed.py": "1000000 followers have the post, from 4 workers\n",
    "log_aggregation.py": "".join(f"device-{number}: 10 problems in 40 lines\n" for number in range(5)),
}


def test_each_example_is_tested() -> None:
    assert sorted(PRINTED) == sorted(path.name for path in EXAMPLES.glob("*.py"))
    page = (EXAMPLES / "index.md").read_text()
    assert all(f"`{name}`" in page for name in PRINTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
async def test_an_example_prints_its_promised_output(name: str) -> None:
    options = load_config(EXAMPLES / "broker.toml")
    config = msgspec.structs.replace(options, listeners=(ListenerOptions(port=0),))
    async with Broker(config) as broker:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLES / name), str(broker.port)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert (process.returncode, output.decode()) == (0, PRINTED[name]), errors.decode()
        async with asyncio.timeout(PATIENCE_S):  # until each message has come to its end
            while any(broker.queues.state(each).depth for each in broker.queues.names):
                await asyncio.sleep(0.01)
