"""`/api/v1/telemetry/files`: the files of the dataset, and no others of its folder."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from starlette.responses import FileResponse

from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.lists import Cursor, Limit
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes

MAX_FILES: Final = 100_000
"""Files of the folder that a list looks at: those of some months."""


class TelemetryFile(msgspec.Struct):
    """One file of the dataset that is complete."""

    path: str
    """Below the telemetry folder: the rest of its address."""
    size_bytes: int
    modified_at: datetime


class TelemetryFiles(msgspec.Struct):
    """A page of files, by path."""

    items: list[TelemetryFile]
    cursor: str | None


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "operation", served_on=OPERATORS)

    @route.get("/telemetry/files", Role.VIEWER, "List telemetry files")
    async def files(cursor: Cursor = "", limit: Limit = 100) -> TelemetryFiles:
        """Those that are complete: readers never see half a file."""
        folder = _folder(context)
        paths = await asyncio.to_thread(_complete_files, folder)
        at = next((number for number, path in enumerate(paths) if path >= cursor), len(paths))
        page = paths[at : at + limit]
        more = paths[at + limit] if len(paths) > at + limit else None
        return TelemetryFiles(items=await asyncio.to_thread(_described, folder, page), cursor=more)

    @route.get("/telemetry/files/{path:path}", Role.OPERATOR, "Download a telemetry file")
    async def file(path: str) -> FileResponse:
        """As it is on disk."""
        folder = _folder(context)
        if not await asyncio.to_thread(_is_complete, folder, path):
            raise Problem(Code.NOT_FOUND, f"there is no complete file {path[:200]!r} in the telemetry folder")
        return FileResponse(folder / path, filename=Path(path).name)

    return route.made


def _folder(context: OperatorContext) -> Path:
    options = context.config.telemetry
    if options is None:
        raise Problem(Code.NOT_AVAILABLE, "the configuration has no section telemetry: no files are written")
    return Path(options.directory).resolve()


def _complete_files(folder: Path) -> list[str]:
    """The paths below the folder, in their order."""
    found: list[str] = []
    for directory, _folders, names in os.walk(folder):
        beginning = Path(directory).relative_to(folder)
        found += [(beginning / name).as_posix() for name in names if _is_name_of_a_file(name)]
        if len(found) >= MAX_FILES:
            break
    return sorted(found)


def _is_name_of_a_file(name: str) -> bool:
    return name.endswith((".parquet", ".jsonl")) and not name.startswith((".", "_"))


def _is_complete(folder: Path, path: str) -> bool:
    """Whether a path names one of the files, and nothing outside of the folder, whatever is written in it."""
    if "\0" in path or not _is_name_of_a_file(path.rpartition("/")[2]):
        return False
    file = (folder / path).resolve()
    return file.is_relative_to(folder) and file.is_file()


def _described(folder: Path, paths: list[str]) -> list[TelemetryFile]:
    found: list[TelemetryFile] = []
    for path in paths:
        try:
            status = os.stat(folder / path)
        except OSError:  # removed meanwhile: it was old
            continue
        modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
        found.append(TelemetryFile(path=path, size_bytes=status.st_size, modified_at=modified_at))
    return found
