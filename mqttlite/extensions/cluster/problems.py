"""What is wrong with a configuration whose broker is one machine of a cluster."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mqttlite.config import Config
from mqttlite.config.shape import Problem
from mqttlite.extensions.cluster.options import MARK_FILE

ROOM: Final = 4
"""How many of the largest messages the log must have room for, at least."""


def problems(config: Config) -> Iterator[Problem]:
    """Of the section `cluster`; and of a broker without it that is given the data of a machine."""
    if config.cluster is None:
        if config.data_dir and (Path(config.data_dir) / MARK_FILE).exists():
            yield Problem(
                "data_dir",
                f": {config.data_dir} is that of a machine of a cluster, and what a broker alone wrote there would be "
                f"lost to the others. Start it with the section cluster. To take it out for ever, remove {MARK_FILE}",
            )
        return
    if not config.data_dir:
        yield Problem("cluster", " needs data_dir, where each machine keeps its copy")
    if find_spec("nats") is None:
        yield Problem("cluster", " needs the client of NATS, which is not installed: pip install 'mqttlite[cluster]'")
    if config.cluster.log_bytes < ROOM * config.limits.max_packet_bytes:
        yield Problem(
            "cluster.log_bytes",
            f" is {config.cluster.log_bytes}: {ROOM} messages of limits.max_packet_bytes "
            f"({config.limits.max_packet_bytes}) must have room in the log",
        )
