"""The configuration: its options, the TOML file that sets them, and the checks of both.

`options` has the values, `file` reads them, `shape` finds wrong keys and types, `checks` finds contradicting options
and unusable files, `lines` finds the line of an option. Invariant: all errors are reported at once.
"""

from mqttlite.config.file import changed_options, load_config, parse_config
from mqttlite.config.options import ClusterOptions, Config, ConfigError, LameDuckOptions, ListenerOptions

__all__ = [
    "ClusterOptions",
    "Config",
    "ConfigError",
    "LameDuckOptions",
    "ListenerOptions",
    "changed_options",
    "load_config",
    "parse_config",
]
