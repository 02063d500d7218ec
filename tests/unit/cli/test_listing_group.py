"""A group of commands lists, where no command is named."""

import click
from click.testing import CliRunner

from mqttlite.cli.listing_group import ListingGroup


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
