"""Builds the schema registry, and the schema checks for topic policies."""

import asyncio
import logging
from pathlib import Path
from typing import Final

from mqttlite.config import Config, ConfigError
from mqttlite.delivery.schemas.parsing import EXTRA_MISSING, is_installed
from mqttlite.delivery.schemas.service import FILE_NAME, RegistryFileError, SchemaRegistry
from mqttlite.delivery.schemas.topic_schema import TopicSchemas

_log = logging.getLogger("mqttlite")


class Schemas:
    """The registry and its checks. Raises `ConfigError` for an unusable file, and for schemas that cannot be
    checked."""

    def __init__(self, config: Config) -> None:
        for number, policy in enumerate(config.topic_policies):
            if policy.schema and not is_installed():
                raise ConfigError(f"topic_policies[{number}].schema: {EXTRA_MISSING}")
        try:
            self.registry: Final = SchemaRegistry(Path(config.data_dir, FILE_NAME) if config.data_dir else None)
        except RegistryFileError as error:
            raise ConfigError(f"data_dir: {error}") from None
        self.of_topics: Final = TopicSchemas(self.registry)

    async def open(self) -> None:
        """Compile the schemas of the topics, and warn about missing ones."""
        for problem in await asyncio.to_thread(self.of_topics.prepare):
            _log.warning("topic_policies: %s", problem)
