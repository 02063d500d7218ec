"""What is wrong with a configuration whose broker is one of several nodes."""

from collections.abc import Iterator
from importlib.util import find_spec

from mqttlite.config import Config
from mqttlite.config.shape import Problem


def problems(config: Config) -> Iterator[Problem]:
    """Of the section `nodes`."""
    if config.nodes is not None and find_spec("nats") is None:
        yield Problem("nodes", " needs the client of NATS, which is not installed: pip install 'mqttlite[cluster]'")
