"""`mqttlite asyncapi`: the catalogue of topics as an AsyncAPI document.

Its contents are made in `catalogue`. Invariant: files are read and nothing is changed, whether a broker runs or not.
"""

import json

import click

from mqttlite.build import VERSION
from mqttlite.catalogue.asyncapi import document, servers_of
from mqttlite.cli.topics import EPILOG, read


@click.command(epilog=EPILOG)
@click.option("-c", "--config", "config_path", metavar="FILE.toml", help="The configuration with the topic policies.")
@click.option("--data-dir", metavar="DIR", help="The data directory of the broker.  [default: as 'mqttlite serve']")
@click.option("--title", default="mqttlite", show_default=True, help="The title of the document.")
@click.option("--version", default=None, help="The version of the document.  [default: that of mqttlite]")
def command(config_path: str | None, data_dir: str | None, title: str, version: str | None) -> None:
    """Print the topics of a broker, their messages and schemas as an AsyncAPI 3.0 document.

    It reads the configuration and the data directory; no broker has to run.
    """
    config, entries, registry = read(config_path, data_dir)
    found = document(entries, registry, servers_of(config), title=title, version=version or VERSION)
    click.echo(json.dumps(found, ensure_ascii=False, indent=2))
