"""Opens the dataset of one run of a broker."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mqttlite.config import ConfigError
from mqttlite.core.broker import Broker
from mqttlite.event_hub import Link, Listener
from mqttlite.extensions.dataset.dataset import Dataset
from mqttlite.extensions.dataset.folder import make_directory
from mqttlite.extensions.dataset.options import TelemetryError, TelemetryOptions
from mqttlite.extensions.dataset.pseudonyms import pseudonyms_of
from mqttlite.extensions.dataset.recorder import DatasetRecorder
from mqttlite.extensions.dataset.rows import SessionRows
from mqttlite.telemetry.figures import Values
from mqttlite.telemetry.recorder import ReadGroups
from mqttlite.telemetry.wall import Wall


class RunningDataset:
    """The files and what writes into them. Raises `ConfigError`. `listeners` are to be registered in this order, behind
    the observer."""

    def __init__(
        self,
        options: TelemetryOptions,
        core: Broker,
        links: Mapping[int, Link],
        broker_id: str,
        wall: Wall,
        *,
        clock: Callable[[], float],
        node: str | None,
        is_node: Callable[[str], bool],
        groups: ReadGroups | None,
    ) -> None:
        try:
            make_directory(options)
            names = pseudonyms_of(options, is_node)
            self.dataset: Final = Dataset(options, broker_id)
        except TelemetryError as error:
            raise ConfigError(f"telemetry.{error.option}: {error}") from None
        self.recorder: Final = DatasetRecorder(
            *(core, links, broker_id, wall, names, self.dataset.write, options), clock=clock, node=node, groups=groups
        )
        self.listeners: Final[Sequence[Listener]] = (
            *(self.recorder, self.recorder.events),
            SessionRows(self.dataset, broker_id, wall, names, node),
        )

    async def close(self, within_s: float) -> None:
        """Write the remaining rows. Call it after the observer's stop."""
        await self.recorder.stop()
        await asyncio.to_thread(self.dataset.close, within_s)

    def figures(self) -> Mapping[str, Values]:
        """The values of its figures."""
        written, dropped = self.dataset.written_rows, self.dataset.dropped_rows
        return {
            "telemetry_rows_written": [({"table": table}, rows) for table, rows in written.items()],
            "telemetry_rows_dropped": [({"table": table}, rows) for table, rows in dropped.items()],
        }
