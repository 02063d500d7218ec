"""`mqttlite restore`: make a backup what a broker begins with.

How that is done lives in `store.sqlite.backup`. Invariant: a database that exists is not overwritten.
"""

from pathlib import Path

import click

from mqttlite.cli.backup import EPILOG, described
from mqttlite.cli.data_dir import data_dir_option


@click.command(epilog=EPILOG)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@data_dir_option
def command(path: Path, data_dir: Path) -> None:
    """Put FILE, which 'mqttlite backup' made, into a data directory that has no database yet.

    No broker may run with that directory. The next one that does begins with what FILE has.
    """
    from mqttlite.store.sqlite.backup import restore  # here, for SQLite takes a while
    from mqttlite.store.sqlite.files import StoreError

    try:
        contents = restore(path, data_dir)
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{data_dir} has {described(contents)}.", err=True)
