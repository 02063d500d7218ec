"""uvloop is optional: without it the broker runs on asyncio's own loop, and the log says so."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

LIMIT_S = 30.0


@pytest.mark.slow
def test_the_broker_runs_on_asyncio_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text('raise ImportError("not installed")\n', encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    mqttlite = [sys.executable, "-m", "mqttlite"]
    process = subprocess.Popen(
        [*mqttlite, "serve", "--port", "0", "--log-format", "text"],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().endswith(") on asyncio\n")
        found = (re.search(r"127\.0\.0\.1:(\d+)", line) for line in process.stderr)
        port = next(each for each in found if each is not None)
        command = [*mqttlite, "health", "--mqtt", f"mqtt://127.0.0.1:{port[1]}"]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.communicate()
