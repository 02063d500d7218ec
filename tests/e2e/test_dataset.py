"""From devices to a report: a broker's process, a fleet with planted troubles, the dataset, Spark, and a browser.

What the clients counted for themselves is the truth. Invariant: nothing here but the file names of the dataset and the
names of the report's tables is shared with the code under test.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet
import pytest

from tests.support.browser import Browser
from tests.test_architecture import ROOT

pytestmark = pytest.mark.slow

TROUBLES: Final = {"flapping": 5, "silent": 3, "slow": 2, "greedy": 2, "duplicate": 2}
TABLE_OF: Final = {
    "flapping": "flapping_clients",
    "silent": "silent_devices",
    "slow": "slow_clients",
    "greedy": "greedy_clients",
    "duplicate": "duplicate_client_ids",
}
SAID_OF: Final = {
    "flapping": "lost its connection",
    "silent": "silent",
    "slow": "reads too slowly",
    "greedy": "times what others do",
    "duplicate": "several devices use its client id",
}
FLEET: Final = ["--devices=40", "--interval=0.5", "--duration=40", "--size=4000", "--connect-rate=100"]
"""Long enough that a socket takes nothing for half a minute, before which the report calls nobody slow."""

IN_ONE_HOUR_S: Final = 90
"""So long before the hour is over the fleet waits for the next one: the report counts by the hour."""

START_S: Final = 30.0
RUN_S: Final = 120.0
REPORT_S: Final = 900.0

CONFIG: Final = """
[[listeners]]
port = 0

[telemetry]
directory = "{directory}"
interval_s = 1.0
rotate_after_s = 5.0
"""


@dataclass(frozen=True)
class Scenario:
    """What there was, and where it is written."""

    dataset: Path
    report: Path
    fleet: dict[str, Any]
    says: str


@contextlib.contextmanager
def broker(directory: Path, dataset: Path) -> Iterator[int]:
    """A broker's process, which ends in good order; its port."""
    config = directory / "mqttlite.toml"
    config.write_text(CONFIG.format(directory=dataset))
    log = directory / "broker.log"
    with log.open("wb") as stderr:
        command = [
            sys.executable,
            "-m",
            "mqttlite",
            "serve",
            "--config",
            str(config),
            "--no-persistence",
            "--log-format",
            "text",
        ]
        process = subprocess.Popen(command, stderr=stderr, cwd=ROOT, env=without_java(directory))
    try:
        deadline = time.monotonic() + START_S
        while not (found := re.search(r"listening for MQTT over \w+ on 127\.0\.0\.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield int(found[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def without_java(directory: Path) -> dict[str, str]:
    """The environment of somebody who has no Java, nor any other program."""
    empty = directory / "bin"
    empty.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PATH": str(empty), "PYTHONPATH": str(ROOT)}


def run(*command: str, env: dict[str, str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """A program of ours, run to its end."""
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit_s, check=False)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """A fleet has lived, and a report of it is written."""
    directory = tmp_path_factory.mktemp("story")
    dataset, report = directory / "dataset", directory / "report"
    troubles = [f"--trouble={kind}={count}" for kind, count in TROUBLES.items()]
    left_s = 3600 - time.time() % 3600
    if left_s < IN_ONE_HOUR_S:
        time.sleep(left_s)
    with broker(directory, dataset) as port:
        way = ["--plain", "--host=127.0.0.1", f"--port={port}", "--json"]
        command = ["-m", "tools.devices.fleet", *way, *FLEET, *troubles]
        fleet = run(*command, env=without_java(directory), limit_s=RUN_S)
    assert fleet.returncode == 0, fleet.stderr
    command = ["-m", "spark_analytics", "report", f"--input={dataset}", f"--out={report}", "--master=local[2]"]
    done = run(*command, env={**os.environ, "PYTHONPATH": str(ROOT)}, limit_s=REPORT_S)
    assert done.returncode == 0, done.stderr
    assert "CodeCache" not in done.stdout, "Java had no room left for compiled code"
    return Scenario(dataset, report, json.loads(fleet.stdout), done.stdout)


def rows(scenario: Scenario, table: str) -> list[dict[str, Any]]:
    """A table of the report."""
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(scenario.report / table / "parquet").to_pylist()
    return found


def test_the_fleet_did_what_it_should(scenario: Scenario) -> None:
    assert scenario.fleet["complete"]
    assert {kind: len(devices) for kind, devices in scenario.fleet["troubles"].items()} == TROUBLES


def test_the_report_counts_what_the_clients_counted(scenario: Scenario) -> None:
    (told,) = rows(scenario, "totals")
    counted = scenario.fleet["clients"]
    assert told["sessions"] == counted["sessions"]
    assert told["open_sessions"] == 0
    assert told["messages_received"] == counted["messages_sent"]
    assert told["messages_sent"] == counted["messages_received"]
    assert told["bytes_received"] == counted["bytes_sent"]
    assert told["bytes_sent"] == counted["bytes_received"]


def test_each_troubled_device_has_the_numbers_that_it_counted(scenario: Scenario) -> None:
    told = {row["client_id"]: row for row in rows(scenario, "traffic_by_client")}
    for devices in scenario.fleet["troubles"].values():
        for client_id, counted in devices.items():
            row = told[client_id]
            assert row["sessions"] == counted["sessions"]
            assert (row["messages_received"], row["messages_sent"]) == (
                counted["messages_sent"],
                counted["messages_received"],
            )
            assert (row["bytes_received"], row["bytes_sent"]) == (counted["bytes_sent"], counted["bytes_received"])


@pytest.mark.parametrize("kind", TROUBLES)
def test_the_report_names_the_troubled_devices_and_no_others(scenario: Scenario, kind: str) -> None:
    assert {row["client_id"] for row in rows(scenario, TABLE_OF[kind])} == set(scenario.fleet["troubles"][kind])


def test_each_troubled_device_has_one_finding(scenario: Scenario) -> None:
    said = [line for line in scenario.says.splitlines() if line.startswith(("! ", "* "))]
    devices = {client_id: kind for kind, of in scenario.fleet["troubles"].items() for client_id in of}
    for client_id, kind in devices.items():
        (finding,) = [line for line in said if line[2:].startswith(f"{client_id}: ")]
        assert SAID_OF[kind] in finding, scenario.says
    assert f"\n{len(devices)} of " in scenario.says


def test_without_java_all_of_it_works_but_the_report_which_says_what_to_install(
    scenario: Scenario, tmp_path: Path
) -> None:
    """The broker and the fleet had none either."""
    command = ["-m", "spark_analytics", "report", f"--input={scenario.dataset}", f"--out={tmp_path / 'report'}"]
    done = run(*command, env=without_java(tmp_path), limit_s=REPORT_S)
    assert done.returncode == 3
    assert done.stdout == ""
    assert re.fullmatch(r"error: .*Java 17.*apt-get install openjdk-17-jre-headless.*\n", done.stderr), done.stderr
    assert not (tmp_path / "report").exists()


async def test_the_page_is_drawn_in_a_browser_without_a_network(scenario: Scenario, browser: Browser) -> None:
    page = scenario.report / "report.html"
    async with browser.showing(page.as_uri()) as shown:
        charts = await shown.find("document.querySelectorAll('.chart').length")
        drawn = await shown.find(
            "[...document.querySelectorAll('.chart')].filter(chart => chart.querySelector('.trace path')).length"
        )
        text = await shown.find("document.body.textContent")
        ascending = await shown.find(
            """(() => {
                document.querySelector('#traffic_by_client th button').click();
                const first = () => [...document.querySelectorAll('#traffic_by_client tbody tr')]
                    .map(row => row.cells[0].textContent);
                const names = first();
                return names.length > 1 && names.join() === [...names].sort((a, b) => a.localeCompare(b)).join();
            })()"""
        )
    assert shown.errors == []
    assert shown.requests == [page.as_uri()]
    assert charts > 5
    assert drawn == charts
    assert ascending
    for kind, devices in scenario.fleet["troubles"].items():
        for client_id in devices:
            assert client_id in text, kind
