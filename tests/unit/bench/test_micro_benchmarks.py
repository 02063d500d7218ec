"""The micro benchmarks run; what they measure is nobody's to judge here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> str:
    pytest.importorskip("pytest_benchmark")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark-disable", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_micro_benchmarks_run_at_small_sizes() -> None:
    printed = run("bench/micro", "-k", "not 100k and not 1M")
    assert "bytes_per_subscription" in printed, "what they say beside the time"
    assert " failed" not in printed
