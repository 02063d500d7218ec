"""The command line: one file per command that parses, makes one call, and prints.

What the commands do lives in the rooms below. Invariant: a command's libraries load only when that command runs.
"""

from mqttlite.cli.main import main

__all__ = ["main"]
