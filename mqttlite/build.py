"""The version of the package, and whether it is compiled.

Invariant: it imports nothing of the broker.
"""

import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

VERSION: Final = "0.1.0"
"""The version of the package. `pyproject.toml` reads it here: to ask what is installed takes 15 ms of each start."""


def is_compiled() -> bool:
    """Whether the core runs compiled."""
    framer = importlib.util.find_spec("mqttlite.wire.framer")
    return framer is not None and (framer.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
