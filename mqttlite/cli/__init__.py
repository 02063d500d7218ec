"""The command line: one file per command that parses, makes one call, and prints.

The commands call the packages below. Invariant: a command's libraries load only when that command runs.
"""

from mqttlite.cli.main import main

__all__ = ["main"]
