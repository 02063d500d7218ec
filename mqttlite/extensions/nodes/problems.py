"""What is wrong with a configuration whose broker is one of several nodes."""

from collections.abc import Iterator
from importlib.util import find_spec

from mqttlite.config import Config
from mqttlite.config.shape import Problem


def problems(config: Config) -> Iterator[Problem]:
    """Of the section `nodes`."""
    if config.nodes is None:
        return
    if config.cluster is not None and not config.nodes.node:
        yield Problem("nodes.node", " is missing: the machines of a cluster are one node, with one name on all of them")
    engine = None if config.cluster is None else config.cluster.engine
    if config.cluster is not None and engine is not None and set(config.nodes.servers) & set(config.cluster.servers):
        yield Problem(
            "nodes.servers",
            " names a server that cluster.engine runs, which lets in the machines of this cluster alone: name servers "
            "of NATS that all nodes share",
        )
    if find_spec("nats") is None:
        yield Problem("nodes", " needs the client of NATS, which is not installed: pip install 'mqttlite[cluster]'")
