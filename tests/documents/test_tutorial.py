"""The commands of README.md, of the first page and of the tutorial, run as they stand there, beside a broker."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttlite import Broker
from tests.documents.test_commands import command_lines
from tests.support.documents import ROOT, blocks

PAGES = ("README.md", "docs/index.md", "docs/tutorial/first-steps.md")
PROGRAM = ".venv/bin/mqttlite"
TIMEOUT_S = 60.0
PRINTED = re.compile(r"The subscriber prints `([^`]+)`")


def pub_and_sub_lines(page: str) -> list[str]:
    """The lines that publish and subscribe through the broker that listens where it does without options."""
    lines = [line for block in blocks("sh") if block.page == page for line in command_lines(block)]
    return [line for line in lines if line.startswith((f"{PROGRAM} pub", f"{PROGRAM} sub")) and " -h " not in line]


def waits_for_messages(line: str) -> bool:
    """Whether it is a `sub` that does not exit of itself."""
    words = shlex.split(line)
    return words[1] == "sub" and not {"-C", "-E", "-W"} & set(words)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(port=0) as broker:
        yield broker


@pytest.fixture
def folder(tmp_path: Path, broker: Broker) -> Path:
    """A folder in which `.venv/bin/mqttlite` uses this broker."""
    program = tmp_path / PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mqttlite "$@" -p {broker.port}\n')
    program.chmod(0o755)
    return tmp_path


def subscribed(broker: Broker) -> int:
    """How many connected clients have a subscription."""

    async def count() -> int:
        found = await broker.admin.clients()
        details = [broker.admin.client(entry.client_id) for entry in found.entries if entry.connected]
        return sum(bool(detail and detail.topic_filters) for detail in details)

    return broker.run(count())


def wait_for_subscribers(broker: Broker, number: int) -> None:
    end = time.monotonic() + TIMEOUT_S
    while subscribed(broker) < number:
        assert time.monotonic() < end, "it has not subscribed"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_do_what_the_page_says(page: str, broker: Broker, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    waiting: list[subprocess.Popen[str]] = []
    lines = pub_and_sub_lines(page)
    assert lines != []
    try:
        for line in lines:
            if waits_for_messages(line):
                command = ["/bin/sh", "-c", f"exec {line}"]
                waiting.append(
                    subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
                )
                wait_for_subscribers(broker, len(waiting))
            else:
                done = subprocess.run(
                    ["/bin/sh", "-c", line],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT_S,
                    check=False,
                )
                assert (done.returncode, done.stderr) == (0, ""), line
    finally:
        for process in waiting:
            process.terminate()
        printed = "".join(process.communicate(timeout=TIMEOUT_S)[0] for process in waiting)
    assert waiting != []
    assert [text for text in PRINTED.findall((ROOT / page).read_text()) if text not in printed] == []
