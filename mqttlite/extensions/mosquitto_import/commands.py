"""`mqttlite import`: convert the configuration of another broker.

How that is done lives in `mosquitto_conf`. Invariant: nothing is changed and no file is written.
"""

import sys
from pathlib import Path

import click

from mqttlite.extensions.mosquitto_import.mosquitto_conf import MosquittoConfError, convert

_EPILOG = """\b
Exit codes:
  0  everything was converted, or is so anyway
  1  some lines have no counterpart, or a broker would not start with the result: standard error says why
  2  the file cannot be read
"""


@click.command(name="import", epilog=_EPILOG)
@click.argument("path", metavar="MOSQUITTO.CONF", type=click.Path(path_type=Path))
def command(path: Path) -> None:
    """Print a mosquitto.conf as a configuration file of mqttlite.

    Password files and ACL files stay as they are: mqttlite reads them, and 'mqttlite config check' checks them.
    """
    try:
        converted = convert(path)
    except MosquittoConfError as error:
        click.echo(f"mqttlite import: {error}", err=True)
        sys.exit(2)
    click.echo(converted.toml, nl=False)
    for sentence in converted.left:
        click.echo(f"not converted: {sentence}", err=True)
    for sentence in converted.refused:
        click.echo(f"a broker would not start: {sentence}", err=True)
    sys.exit(1 if converted.left or converted.refused else 0)
