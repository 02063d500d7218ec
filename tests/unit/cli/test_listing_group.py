"""A group of commands lists, where no command is named."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from mqttlite.cli.listing_group import LIST_COMMANDS, ListingGroup
from mqttlite.cli.main import main


@click.group(cls=ListingGroup)
def group() -> None: ...


@group.command("ls")
@click.option("--json", "as_json", is_flag=True)
def list_all(as_json: bool) -> None:
    click.echo(f"all {as_json}")


@group.command()
def show() -> None:
    click.echo("one")


def test_without_a_command_it_lists() -> None:
    for arguments, printed in (
        ([], "all False\n"),
        (["--json"], "all True\n"),
        (["ls"], "all False\n"),
        (["show"], "one\n"),
    ):
        assert CliRunner().invoke(group, arguments).output == printed
    assert "Commands:" in CliRunner().invoke(group, ["--help"]).output


def groups(within: click.Group, context: click.Context) -> Iterator[tuple[str, click.Group]]:
    for name in within.list_commands(context):
        found = within.get_command(context, name)
        if isinstance(found, click.Group):
            yield name, found
            yield from groups(found, context)


def test_each_group_that_lists_has_a_command_for_it() -> None:
    listing = {name: each for name, each in groups(main, click.Context(main)) if isinstance(each, ListingGroup)}
    assert {"clients", "queue", "bridge"} <= set(listing)
    assert [name for name, each in listing.items() if not set(LIST_COMMANDS) & set(each.commands)] == []


@pytest.mark.parametrize(("arguments", "shown"), [([], "Commands:"), (["--json"], "No such option")])
def test_a_group_that_does_not_list_shows_its_help(arguments: list[str], shown: str) -> None:
    result = CliRunner().invoke(main, ["cluster", *arguments])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert "Usage: mqttlite cluster" in result.output or "Usage: main cluster" in result.output
    assert shown in result.output
