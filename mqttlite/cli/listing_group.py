"""A group of commands about many things of one kind: without a command it lists them."""

from typing import Final

import click

LIST_COMMANDS: Final = ("ls", "list")
"""The names of the command that lists; a group has one of them."""


class ListingGroup(click.Group):
    """`mqttlite clients --json` is `mqttlite clients ls --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [next(each for each in LIST_COMMANDS if each in self.commands), *args]
        return super().parse_args(ctx, args)
