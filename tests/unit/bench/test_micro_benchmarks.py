"""The micro benchmarks run; what they measure is nobody's to judge here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

WITH_TEN_THOUSAND_CLIENTS = "test_one_message_to_ten_thousand"
"""Four sizes that differ in the number of filters took most of the time; with one filter it is the same code."""


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
    printed = run("bench/micro", "-k", f"not 100k and not 1M and not ({WITH_TEN_THOUSAND_CLIENTS} and 0)")
    assert "bytes_per_subscription" in printed, "what they say beside the time"
    assert " failed" not in printed
