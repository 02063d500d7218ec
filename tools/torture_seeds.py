"""Many seeds of the simulated cluster, one after the other: what the test suite plays some of."""

import logging
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.simulation.cluster import run_cluster

TOLD_S: Final = 60.0
"""How often it is said how far it is."""


def play(first: int, count: int) -> None:
    """Raises what a seed raises that breaks a promise, after its number was printed."""
    logging.disable()  # faults are what the machines log
    began = told = time.monotonic()
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory(prefix="mqttlite-seed-") as folder:
            try:
                run_cluster(seed, Path(folder))
            except BaseException:
                print(f"seed {seed}:", flush=True)
                raise
        if time.monotonic() - told > TOLD_S:
            told = time.monotonic()
            print(f"{seed - first + 1} seeds in {told - began:.0f} s", flush=True)
    print(f"{count} seeds from {first} on: every promise was kept", flush=True)
