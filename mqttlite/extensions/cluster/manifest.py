"""What belongs to clusters."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest

MANIFEST: Final = Manifest(
    commands={
        "cluster": Command(
            "Look at the machines of a cluster, or let another one serve.",
            "mqttlite.extensions.cluster.commands:command",
        ),
    },
    switch="cluster",
    conflicts="mqttlite.extensions.cluster.problems:problems",
    serving="mqttlite.extensions.cluster.serving:serve",
)
