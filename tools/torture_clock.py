"""Runs a command of mqttlite with a wall clock that can step: the true one plus the seconds in a file.

`python -m tools.torture_clock FILE serve …`. Only `time.time` and `time.time_ns` are replaced, in this process; the
clocks by which a program waits are the true ones.
"""

import sys
import time
from pathlib import Path


def main() -> None:
    """The command line."""
    file = Path(sys.argv.pop(1))
    true_ns = time.time_ns

    def stepped_ns() -> int:
        return true_ns() + int(file.read_text()) * 1_000_000_000

    time.time_ns = stepped_ns
    time.time = lambda: stepped_ns() / 1_000_000_000
    from mqttlite.cli.main import main as run  # what it imports is to have these clocks

    run()


if __name__ == "__main__":
    main()
