"""The port by which an operator's commands ask a running broker, wherever it is, and its errors.

`ask_admin` asks its admin socket, `api_client` over HTTP. Invariant: each failure has an exit code.
"""

from typing import Any, Final

import click

MAX_ANSWER_BYTES: Final = 128 * 1_048_576
"""More than a broker answers: a page has 1,000 topics, of 65,535 bytes at most."""

PAGE: Final = 1_000
"""Entries to ask for at a time: what a broker gives at most."""

MAX_CALLS: Final = 1_000
"""Calls to remove what there is: ten million messages; where messages come as fast as they are removed, it ends."""


class Unreachable(click.ClickException):
    """No answer; the text is a sentence that says why, and what to do."""

    exit_code = 1


class WrongUsage(click.ClickException):
    """The broker does not take what was asked for."""

    exit_code = 2


class Conflict(click.ClickException):
    """The state of the broker does not allow the request."""

    exit_code = 4


class NotFound(click.ClickException):
    """The broker does not have the requested thing."""

    exit_code = 3


class Asker:
    """Asks a running broker, wherever it is."""

    is_remote = False
    """Whether over HTTP."""

    def ask(
        self, method: str, *segments: str, body: object = None, **parameters: str | int | float | bool | None
    ) -> Any:
        """The answer, for a path of these segments. Raises `Unreachable`, `NotFound` and `WrongUsage`."""
        raise NotImplementedError

    def page(self, *segments: str, limit: int, **parameters: str | bool | None) -> dict[str, Any]:
        """The first `limit` entries of a list, and the cursor of those that follow."""
        entries: list[Any] = []
        cursor = ""
        while len(entries) < limit:
            wanted = min(PAGE, limit - len(entries))
            found = self.ask("GET", *segments, limit=wanted, cursor=cursor, **parameters)
            entries += found["entries"]
            cursor = found["cursor"]
            if not cursor:
                break
        return {"entries": entries, "cursor": cursor}

    def remove(self, *segments: str, dry_run: bool, **parameters: str) -> dict[str, Any]:
        """Remove messages, call by call until none is left; how many. A dry run counts what one call would remove."""
        removed = 0
        found: dict[str, Any] = {"complete": False}
        for _ in range(MAX_CALLS):
            found = self.ask("DELETE", *segments, dry_run=dry_run, **parameters)
            removed += found["messages"]
            if found["complete"] or dry_run:
                break
        return {"messages": removed, "complete": found["complete"]}


def text_of(value: str | int | float | bool) -> str:
    """A parameter as it stands in a query."""
    return str(value).lower() if isinstance(value, bool) else str(value)
