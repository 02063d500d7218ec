"""What an extension of mqttlite's own is, as data.

The command line, the configuration, the gateway and the metrics read manifests, and import nothing else of an extension
until it is used. A *reference* names an object by `"module:attribute"`. Invariant: importing a manifest starts nothing,
and imports no broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mqttlite.telemetry.figures import Figure


class Command(NamedTuple):
    """A command of `mqttlite`."""

    summary: str
    """The sentence in `mqttlite --help`."""
    reference: str
    """A click command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One extension. Its folder has its name."""

    needs: tuple[str, ...] = ()
    """The extensions whose modules it imports."""
    compiled: str = ""
    """Its modules that are compiled when the package is built, with blanks between their names. `setup.py` reads it."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    """By name."""
    routes: tuple[str, ...] = ()
    """References to functions that make routes of the HTTP application from an `OperatorContext`."""
    gateway_routes: tuple[str, ...] = ()
    """The same for routes that only the gateway has, from a `GatewayContext`."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """References to the error formats (`gateway.problems.ErrorFormat`) of some of their paths, by prefix."""
    pages: tuple[str, ...] = ()
    """References to functions that add pages to a `Dashboard`. Only the dashboard imports their modules."""
    menu: tuple[tuple[str, str], ...] = ()
    """Of these the addresses and titles that stand in its menu."""
    part_of: Mapping[str, str] = field(default_factory=dict)
    """The others, and the page in the menu to which each belongs."""
    lookup: str = ""
    """A reference to a function that reads the schemas of the catalogue (`catalogue.entries.Lookup`) from a data
    directory. It raises `ConfigError`."""
    first_levels: tuple[bytes, ...] = ()
    """The reserved first levels of topics that the core serves if this extension is there."""
    namespaces: tuple[str, ...] = ()
    """References to the `Syntax` of each namespace that it serves itself."""
    served: str = ""
    """A reference to the filters (bytes) of the topics below its namespaces to which clients may publish."""
    right_of: str = ""
    """A reference to a function: what it takes to publish to a topic (`core.rights`)."""
    subject_of: str = ""
    """A reference to a function: the topic that a topic is about, whose permissions count."""
    switch: str = ""
    """The option at the top of the configuration that turns the extension on. Empty: it is always on."""
    advice: str = ""
    """A reference to a function: what to do with a configuration file, by its path and text, that is no TOML, in a
    sentence; empty if it does not know the file."""
    conflicts: str = ""
    """A reference to a function that finds what is wrong with a `Config` as a whole: `config.shape.Problem`s."""
    file_problems: str = ""
    """The same for the files that its options name, without changing them, where it is turned on."""
    look: str = ""
    """A reference to a coroutine function: it looks at the servers that a `Config` names, and changes nothing there. It
    returns what does not work now, in sentences, and raises `ConfigError` for what a start refuses. Only checks of a
    configuration call it, where the extension is turned on."""
    serving: str = ""
    """A reference to a function: how `mqttlite serve` runs the broker while the option `switch` is set. See
    `cli.serve.Serving`."""
    figures: tuple[Figure, ...] = ()
    """The metrics for which its constructor gives values."""
