"""What is wrong with a configuration whose streams are archived."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from mqttlite.config import Config
from mqttlite.config.shape import Problem
from mqttlite.files.writable import why_unwritable


def problems(config: Config) -> Iterator[Problem]:
    """Of the section `stream_archive`, on this machine. Loads pyarrow, which takes a while."""
    options = config.stream_archive
    if options is None:
        return
    reason = why_unwritable(Path(options.directory))
    if reason:
        yield Problem("stream_archive.directory", f": {reason}")
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        hint = "pip install 'mqttlite[telemetry]'"
        yield Problem("stream_archive", f" needs pyarrow, which cannot be loaded ({error}): {hint}")
