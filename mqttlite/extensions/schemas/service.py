"""The registry of a running broker: changes it one at a time, and keeps it in a file of the data directory.

Invariant: a change is in the file, whole, before anybody sees it; without a file it lasts as long as the broker.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mqttlite.extensions.schemas.compare import Comparison, compare
from mqttlite.extensions.schemas.parsed import ParsedSchema, SchemaError
from mqttlite.extensions.schemas.parsing import parse
from mqttlite.extensions.schemas.registry import Compatibility, Registry, RegistryError, Schema, Version
from mqttlite.files.atomic_file import save
from mqttlite.files.shared_document import ChangedElsewhere, NotAgreed, SharedDocument

FILE_NAME: Final = "schemas.json"

MAX_FILE_BYTES: Final = 256 * 1_048_576
"""More than a registry can have: a larger file is another file."""

MAX_COMPARISONS: Final = 8
"""One is under way at a time, for ten seconds at most; so an answer takes no longer than a client waits."""

MAX_PARSED: Final = 1_000
"""Schemas that are kept in the form in which they are used, some ten kilobytes each; the others are parsed again."""

T = TypeVar("T")

_log = logging.getLogger("mqttlite.schemas")


class RegistryFileError(ValueError):
    """A file that cannot be used; the text says which, and what is wrong."""


class SchemaRegistry:
    """`path` is None for a registry in memory. `save_file` writes the file, and `compare_schemas` is called in a
    thread: others in tests."""

    def __init__(
        self,
        path: Path | None = None,
        save_file: Callable[[Path, bytes], None] = save,
        compare_schemas: Callable[[Comparison], list[str]] = compare,
    ) -> None:
        """Raises `RegistryFileError`."""
        self._path: Final = path
        self._save: Final = save_file
        self._parsed: Final[dict[int, ParsedSchema]] = {}
        self.document: Final = SharedDocument(
            *("schemas", _parse_file, self._replace), path=path, lock=asyncio.Lock(), reload=self._reload
        )
        self._changing: Final = self.document.lock
        self._compare: Final = compare_schemas
        self._comparing: Final = asyncio.Lock()
        self._comparisons = 0
        self.registry: Registry = Registry() if path is None else load(path)
        """Another object after each change."""

    def parsed(self, schema_id: int) -> ParsedSchema:
        """The schema of an id, parsed. Raises `SchemaError`."""
        found = self._parsed.get(schema_id)
        if found is None:
            schema = self.registry.schemas.get(schema_id)
            if schema is None:
                raise SchemaError(f"there is no schema {schema_id}")
            found = parse(schema.type, schema.text)
            if len(self._parsed) >= MAX_PARSED:
                self._parsed.pop(next(iter(self._parsed)), None)  # another thread may have done it
            self._parsed[schema_id] = found
        return found

    async def register(self, name: str, schema: Schema) -> Version:
        """The version of a subject that has the schema: a new one, or one that it has already. Raises
        `RegistryError`."""
        async with self._changing:
            await parse_schema(schema)
            registry, version = await asyncio.to_thread(self.registry.register, name, schema)
            if registry is self.registry:
                return version
            reasons = await self.incompatibilities(name, schema)
            if reasons:
                raise RegistryError(
                    409,
                    "Schema being registered is incompatible with an earlier schema for subject "
                    f'"{name}", compatibility {self.registry.level(name)}: {"; ".join(reasons)}',
                )
            await self._keep(registry)
            _log.info("schema %s:%d is registered, with the id %d", name, version.number, version.schema_id)
            return version

    async def incompatibilities(self, name: str, schema: Schema, against: list[Version] | None = None) -> list[str]:
        """Why a schema may not be the next version of a subject; empty if it may. With `against` it is compared with
        these versions. Raises `RegistryError`."""
        registry = self.registry
        versions = registry.before(name) if against is None else against
        level = registry.level(name)
        if not versions or level == "NONE":
            return []
        if self._comparisons >= MAX_COMPARISONS:
            raise RegistryError(50301, f"{MAX_COMPARISONS} schemas are being compared or wait for it: come again.")
        self._comparisons += 1
        try:
            async with self._comparing:
                before = [(each.number, registry.schema(each.schema_id)) for each in versions]
                return await asyncio.to_thread(self._compare, Comparison(schema, level, before))
        finally:
            self._comparisons -= 1

    async def delete_subject(self, name: str, *, permanently: bool) -> list[int]:
        """The numbers of the versions that were deleted. Raises `RegistryError`."""
        numbers = await self._change(lambda registry: registry.delete_subject(name, permanently=permanently))
        _log.info("subject %s is deleted%s", name, " for good" if permanently else "")
        return numbers

    async def delete_version(self, name: str, number: int, *, permanently: bool) -> int:
        """The number of the version that was deleted. Raises `RegistryError`."""
        deleted = await self._change(lambda registry: registry.delete_version(name, number, permanently=permanently))
        _log.info("schema %s:%d is deleted%s", name, deleted, " for good" if permanently else "")
        return deleted

    async def set_level(self, name: str | None, level: Compatibility | None) -> None:
        """Set the compatibility level of a subject, or of the registry; None: that of the registry, or BACKWARD.
        Raises `RegistryError`."""
        await self._change(lambda registry: (registry.with_level(name, level), None))
        _log.info("the compatibility level of %s is %s", name or "the registry", level or "the default")

    async def _change(self, change: Callable[[Registry], tuple[Registry, T]]) -> T:
        async with self._changing:
            registry, result = change(self.registry)
            await self._keep(registry)
            return result

    async def _keep(self, registry: Registry) -> None:
        """Save what a change made, and let others see it. Raises `RegistryError`; then nothing has changed."""
        content = msgspec.json.encode(registry)
        try:
            await self.document.agree(content)
        except ChangedElsewhere as error:
            raise RegistryError(40901, str(error)) from None
        except NotAgreed as error:
            raise RegistryError(50302, str(error)) from None
        if self._path is not None:
            try:
                await asyncio.to_thread(self._save, self._path, content)
            except OSError as error:
                _log.error("%s cannot be written, the change is undone: %s", self._path, error.strerror or error)
                raise RegistryError(
                    50001, "Error in the backend data store: the registry's file cannot be written"
                ) from None
        self._use(registry)

    async def _replace(self, content: bytes) -> None:
        """Use what another node has made of the registry. Raises `OSError`."""
        registry = await asyncio.to_thread(_parse_file, content)
        if self._path is not None:
            await asyncio.to_thread(self._save, self._path, content)
        self._use_other(registry)

    async def _reload(self, content: bytes) -> None:
        self._use_other(await asyncio.to_thread(_parse_file, content))

    def _use_other(self, registry: Registry) -> None:
        for schema_id in list(self._parsed):
            if registry.schemas.get(schema_id) != self.registry.schemas.get(schema_id):
                del self._parsed[schema_id]
        self._use(registry)

    def _use(self, registry: Registry) -> None:
        self.registry = registry
        for schema_id in list(self._parsed):
            if schema_id not in registry.schemas:
                del self._parsed[schema_id]


async def parse_schema(schema: Schema) -> ParsedSchema:
    """Raises `RegistryError` for a text that is no schema."""
    try:
        return await asyncio.to_thread(parse, schema.type, schema.text)
    except SchemaError as error:
        raise RegistryError(42201, f"Invalid schema: {error}") from None


def load(path: Path) -> Registry:
    """What a file holds; an empty registry where there is none. Raises `RegistryFileError`."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise RegistryFileError(f"{path}: {MAX_FILE_BYTES // 1_048_576} MiB at most")
        content = path.read_bytes()
    except FileNotFoundError:
        return Registry()
    except OSError as error:
        raise RegistryFileError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return _parse_file(content)
    except ValueError as error:
        raise RegistryFileError(
            f"{path}: {error}. Put back a copy, or move it away: then no schema is registered"
        ) from None


def _parse_file(content: bytes) -> Registry:
    """Raises ValueError for what is no file of a registry."""
    try:
        return msgspec.json.decode(content, type=Registry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no file of a schema registry: {error}") from None
