"""The default data directory: the platform's folder for persistent application data."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def default_data_dir(environment: Mapping[str, str]) -> Path:
    r"""systemd's `STATE_DIRECTORY` if it is set, else a folder of the user.

    That is `~/.local/state/mqttlite` on Linux (XDG Base Directory Specification),
    `~/Library/Application Support/mqttlite` on macOS and `%LOCALAPPDATA%\mqttlite` on Windows.
    """
    if state := environment.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(state)
    if sys.platform == "win32":
        base = environment.get("LOCALAPPDATA") or os.path.expanduser(r"~\AppData\Local")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Application Support")
    else:
        base = environment.get("XDG_STATE_HOME", "")
        if not os.path.isabs(base):  # "all paths … must be absolute", else they are to be ignored
            base = os.path.expanduser("~/.local/state")
    return Path(base) / "mqttlite"
