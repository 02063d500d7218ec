"""`mqttlite backup`: copy what a broker keeps in its data directory to a file, while it runs or not.

How that is done lives in `store.sqlite.backup`. Invariant: nothing that exists is overwritten.
"""

from pathlib import Path
from typing import Any, Final

import click

from mqttlite.cli.data_dir import data_dir_option

EPILOG: Final = "Exit codes: 0, done; 1, refused or failed, and nothing was changed; 2, wrong usage."


@click.command(epilog=EPILOG)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@data_dir_option
def command(path: Path, data_dir: Path) -> None:
    """Copy sessions, queued, retained and delayed messages of a broker to FILE, which must not exist.

    With them go the files beside the database: topics, schemas, API keys and dynamic security. The broker may run: it
    goes on meanwhile. FILE has everything that was acknowledged before the backup began, and 'mqttlite restore' puts it
    into a data directory.
    """
    from mqttlite.store.sqlite.backup import back_up  # here, for SQLite takes a while
    from mqttlite.store.sqlite.files import StoreError

    try:
        contents = back_up(data_dir, path)
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{path} has {described(contents)}.", err=True)


def described(contents: Any) -> str:
    """The contents of a copy, in words."""
    counted = [
        _some(contents.sessions, "session"),
        _some(contents.queued, "queued message"),
        _some(contents.retained, "retained message"),
        _some(contents.delayed, "delayed message"),
    ]
    queues, in_queues = contents.logs.get("$queue", (0, 0))
    if queues:
        letters = _some(contents.logs.get("$dlq", (0, 0))[1], "dead letter")
        counted.append(f"{_some(queues, 'queue')} with {_some(in_queues, 'message')} and {letters}")
    beside = f", and {', '.join(contents.files)}" if contents.files else ""
    return f"{', '.join(counted[:-1])} and {counted[-1]} ({contents.size_bytes:,} bytes){beside}"


def _some(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
