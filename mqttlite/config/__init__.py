"""The configuration: its options, the TOML file that sets them, and everything that can be wrong with both.

`options` holds the values, `file` reads them, `shape` finds wrong keys and types, `checks` finds options that do not
go together and files that cannot be used, `lines` finds where an option stands. Invariant: everything that is wrong
is reported at once.
"""

from mqttlite.config.file import changed_options, load_config, parse_config
from mqttlite.config.options import Config, ConfigError, LameDuckOptions, ListenerOptions

__all__ = [
    "Config",
    "ConfigError",
    "LameDuckOptions",
    "ListenerOptions",
    "changed_options",
    "load_config",
    "parse_config",
]
