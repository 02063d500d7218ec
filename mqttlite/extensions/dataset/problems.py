"""What is wrong with the files of the section `telemetry`. Invariant: nothing on the disk is changed."""

from collections.abc import Callable, Iterator
from typing import Final

from mqttlite.config.options import Config
from mqttlite.config.shape import Problem
from mqttlite.extensions.dataset import parquet
from mqttlite.extensions.dataset.folder import check_directory
from mqttlite.extensions.dataset.options import TelemetryError, TelemetryOptions
from mqttlite.extensions.dataset.pseudonyms import check_key_file

_CHECKS: Final[tuple[Callable[[TelemetryOptions], object], ...]] = (
    check_directory,
    check_key_file,
    lambda options: parquet.is_wanted(options.format),
)


def problems(config: Config) -> Iterator[Problem]:
    """The folder, the key, and pyarrow where it is asked for."""
    assert config.telemetry is not None
    for check in _CHECKS:
        try:
            check(config.telemetry)
        except TelemetryError as error:
            yield Problem(f"telemetry.{error.option}", f": {error}")
