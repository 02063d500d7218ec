"""The extensions of mqttlite's own. To add one, add its folder and its line; without both the broker runs without it.

Invariant: it imports the manifests alone.
"""

import importlib
from collections.abc import Mapping
from typing import Any, Final

from mqttlite.extensions.manifest import Manifest

_NAMES: Final = (
    "bridge",
    "cluster",
    "dashboard",
    "dataset",
    "delayed",
    "dynamic_security",
    "explain",
    "mosquitto_import",
    "nodes",
    "presence",
    "pubsub",
    "push",
    "queues",
    "routes",
    "schemas",
    "sparkplug",
    "streams",
)


def resolve(reference: str) -> Any:
    """The object that a reference names."""
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)


BUILT_IN: Final[Mapping[str, Manifest]] = {
    name: resolve(f"mqttlite.extensions.{name}.manifest:MANIFEST") for name in _NAMES
}
"""By name."""

for _name, _manifest in BUILT_IN.items():
    for _needed in _manifest.needs:
        if _needed not in BUILT_IN:
            raise ImportError(f"the extension {_name} needs {_needed}: take both away, or none")


def refusal(name: str) -> str:
    """What is said about an option of an extension that is missing, behind its path; empty if it is there, or if the
    option is of none."""
    if not name or name in BUILT_IN:
        return ""
    return f" belongs to the extension {name}, which this broker does not have: remove it"


ALWAYS_ON: Final = tuple(each for each in BUILT_IN.values() if not each.switch)
"""Those that no option turns on."""


def turned_on(config: object) -> tuple[Manifest, ...]:
    """Those that run with a configuration."""
    return tuple(each for each in BUILT_IN.values() if not each.switch or getattr(config, each.switch))
