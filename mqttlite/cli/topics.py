"""`mqttlite topics`: the catalogue of topics, from the files of a broker; and the topics that were made over HTTP.

`catalogue` makes the catalogue; the other commands are in `made_topics`. Invariant: files are read and
nothing is changed, whether a broker runs or not.
"""

import os
from pathlib import Path

import click
import msgspec

from mqttlite.catalogue.entries import Entry, Lookup, catalogue
from mqttlite.cli.ask_admin import print_table
from mqttlite.cli.configured import made_schemas
from mqttlite.cli.listing_group import ListingGroup
from mqttlite.cli.made_topics import COMMANDS
from mqttlite.config import Config, ConfigError, load_config
from mqttlite.config.data_dir import default_data_dir
from mqttlite.security.topic_file import FILE_NAME as TOPIC_FILE
from mqttlite.security.topic_file import load as load_topics
from mqttlite.security.topic_records import TopicFileError

_HEADER = ("TOPICS", "OWNER", "CLASS", "ACCESS", "SCHEMA", "DESCRIPTION")

EPILOG = "Exit codes: 0, done; 2, wrong usage or a wrong file."


@click.group(cls=ListingGroup)
def command() -> None:
    """Say what topics are for; list, make or forget topics with an owner, over HTTP (--url)."""


@command.command("catalogue", epilog=EPILOG)
@click.option("-c", "--config", "config_path", metavar="FILE.toml", help="The configuration with the topic policies.")
@click.option("--data-dir", metavar="DIR", help="The data directory of the broker.  [default: as 'mqttlite serve']")
@click.option("--json", "as_json", is_flag=True, help="Print the catalogue as JSON.")
def show(config_path: str | None, data_dir: str | None, as_json: bool) -> None:
    """List topics with their owner, class, access, schema and description: those with a policy in the configuration,
    and those that were made over HTTP.

    On a terminal it is a table; elsewhere each entry is a line, and tabs are between its columns.
    """
    _, entries, _ = read(config_path, data_dir)
    if as_json:
        click.echo(msgspec.json.encode(entries))
        return
    print_table(_HEADER, [_row(each) for each in entries])


for _each in COMMANDS:
    command.add_command(_each)


def read(config_path: str | None, data_dir: str | None) -> tuple[Config, list[Entry], Lookup]:
    """The topics in the files of a broker. Raises `click.UsageError`."""
    try:
        config = Config() if config_path is None else load_config(config_path)
        directory = Path(data_dir or config.data_dir or default_data_dir(os.environ))
        schemas = made_schemas(str(directory))
        topics = load_topics(directory / TOPIC_FILE)
    except (ConfigError, TopicFileError) as error:
        raise click.UsageError(str(error)) from None
    return config, catalogue(config.topic_policies, topics, schemas), schemas


def _row(entry: Entry) -> tuple[str, ...]:
    used = entry.schema_in_use
    schema = "-" if entry.schema is None else "not registered" if used is None else f"{used.subject}:{used.version}"
    return entry.topics, entry.owner or "-", entry.topic_class, entry.access, schema, entry.description or "-"
