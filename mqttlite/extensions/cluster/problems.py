"""What is wrong with a configuration whose broker is one machine of a cluster."""

from collections.abc import Iterator
from importlib.util import find_spec

from mqttlite.config import Config
from mqttlite.config.shape import Problem


def problems(config: Config) -> Iterator[Problem]:
    """Of the section `cluster`."""
    if config.cluster is None:
        return
    if not config.data_dir:
        yield Problem("cluster", " needs data_dir, where each machine keeps its copy")
    if find_spec("nats") is None:
        yield Problem("cluster", " needs the client of NATS, which is not installed: pip install 'mqttlite[cluster]'")
