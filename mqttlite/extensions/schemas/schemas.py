"""Builds the schema registry, and the schema checks for topic policies."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mqttlite.config import ConfigError
from mqttlite.extensions.schemas.parsing import EXTRA_MISSING, is_installed
from mqttlite.extensions.schemas.registry import Registry
from mqttlite.extensions.schemas.service import FILE_NAME, RegistryFileError, SchemaRegistry, load
from mqttlite.extensions.schemas.topic_schema import TopicSchemas
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.telemetry.figures import Values

_log = logging.getLogger("mqttlite")


class Schemas:
    """The registry and its checks. Raises `ConfigError` for an unusable file, and for schemas that cannot be
    checked."""

    def __init__(self, policies: Sequence[TopicPolicyOptions], data_dir: str | None) -> None:
        for number, policy in enumerate(policies):
            if policy.schema and not is_installed():
                raise ConfigError(f"topic_policies[{number}].schema: {EXTRA_MISSING}")
        try:
            self.registry: Final = SchemaRegistry(Path(data_dir, FILE_NAME) if data_dir else None)
        except RegistryFileError as error:
            raise ConfigError(f"data_dir: {error}") from None
        self.of_topics: Final = TopicSchemas(self.registry)

    def lookup(self) -> Registry:
        """The schemas of now."""
        return self.registry.registry

    def figures(self) -> Mapping[str, Values]:
        """By the names in the manifest."""
        violations = sorted(self.of_topics.violations().items())
        return {
            "schema_violations": [
                ({"schema": schema, "action": action}, count) for (schema, action), count in violations
            ]
        }

    async def open(self) -> None:
        """Compile the schemas of the topics, and warn about missing ones."""
        for problem in await asyncio.to_thread(self.of_topics.prepare):
            _log.warning("topic_policies: %s", problem)


def registry_in(data_dir: Path) -> Registry:
    """The schemas in a data directory. Raises `ConfigError`."""
    try:
        return load(data_dir / FILE_NAME)
    except RegistryFileError as error:
        raise ConfigError(f"data_dir: {error}") from None
