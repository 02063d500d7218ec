"""How the commands of an operator ask the admin socket of a broker, or over HTTP, and what they print.

Their requests live in their files. Invariant: to ask imports nothing of the broker but the place of its data.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final, TextIO, TypeVar
from urllib.parse import urlsplit

import click

from mqttlite.cli.ask_options import (
    F,
    data_dir_option,
    is_from_environment,
    json_option,
    node_option,
    timeout_option,
    url_options,
    with_options,
)
from mqttlite.cli.asker import Asker, Conflict, NotFound, Place, Unreachable, WrongUsage
from mqttlite.cli.data_dir import data_dir_of
from mqttlite.cli.top_words import printable

TIMEOUT_S: Final = 30.0
"""A broker gives an answer up after as long: some thousand retained messages are removed in seconds."""

EVERYTHING: Final = 1_000_000_000
"""Entries to list for `--limit 0`."""

EPILOG: Final = """\b
Exit codes:
  0  done
  1  no broker can be reached there, or it failed
  2  wrong usage
  3  there is no such session, queue or message
"""

Row = Sequence[object]
T = TypeVar("T")

__all__ = ["Asker", "Conflict", "NotFound", "Unreachable", "WrongUsage"]

options: Final = with_options(json_option(), data_dir_option(), timeout_option(TIMEOUT_S))
"""The options of all commands that ask the admin socket."""

_config_option: Final = click.option(
    "-c", "--config", "config_path", metavar="FILE.toml", help="Find the data directory in the broker's file."
)


def remote_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `options` and `url_options`. The function gets `client` for them, and `as_json`."""

    @wraps(function)
    def with_client(
        *,
        config_path: str | None,
        data_dir: str | None,
        url: str | None,
        token: str | None,
        ca_file: str | None,
        node: str | None,
        timeout_s: float,
        **others: Any,
    ) -> Any:
        if config_path is not None:
            if data_dir is not None or (url is not None and not is_from_environment("url")):
                raise click.UsageError("-c, --data-dir and --url each name a broker: give one of them")
            data_dir, url = data_dir_of(config_path), None
        return function(client=asker_of(data_dir, url, token, ca_file, timeout_s, node), **others)

    return options(_config_option(url_options()(node_option()(with_client))))


def asker_of(
    data_dir: str | None,
    url: str | None,
    token: str | None,
    ca_file: str | None,
    timeout_s: float,
    node: str | None = None,
) -> Asker:
    """The client of a broker: over HTTP if there is an address, else at the admin socket of a data directory, without
    one that which `serve` takes. `node` is another one that it asks. Raises `click.UsageError` and `WrongUsage`."""
    if url is not None:
        if data_dir is not None:
            raise click.UsageError("--url and --data-dir are two brokers: name one")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username is not None:
            raise WrongUsage(
                f"--url is {url!r}: write an address such as http://127.0.0.1:8080, with --token beside it"
            )
        return Asker(Place(url, token=token, ca_file=ca_file, node=node), timeout_s)
    if data_dir is None:
        from mqttlite.config.data_dir import default_data_dir  # here, for it takes a while

        data_dir = str(default_data_dir(os.environ))
    return Asker(Place(data_dir=data_dir, node=node), timeout_s)


def limit_option(default: int) -> Callable[[F], F]:
    """`--limit N`, of a list."""
    return click.option(
        "--limit",
        type=click.IntRange(0, EVERYTHING),
        callback=lambda _context, _parameter, value: value or EVERYTHING,
        metavar="N",
        default=default,
        show_default=True,
        help="How many to list; 0: all.",
    )


# ── ask before acting ──────────────────────────────────────────────────────────────────────────────────────────────

yes_option: Final = click.option("--yes", "-y", is_flag=True, help="Do not ask before it acts.")


def confirm(question: str) -> None:
    """Ask on the terminal. Raises `click.Abort` for a no, and `WrongUsage` without a terminal."""
    if not is_terminal(sys.stdin):
        raise WrongUsage(f"{question} Nobody can be asked, because the standard input is no terminal: give --yes.")
    click.confirm(question, abort=True, err=True)


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


# ── print ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def print_json(answer: object) -> None:
    click.echo(json.dumps(answer, ensure_ascii=False))


def print_answer(answer: object, as_json: bool, print_words: Callable[[], None]) -> None:
    """Print an answer as JSON, or for people."""
    if as_json:
        print_json(answer)
    else:
        print_words()


def print_sentence(answer: object, as_json: bool, sentence: str) -> None:
    """Print an answer as JSON, or what a sentence or some lines say of it."""
    print_answer(answer, as_json, lambda: click.echo(sentence))


def print_entries(header: Sequence[str], entries: Sequence[dict[str, Any]], row: Callable[[Any], Row]) -> None:
    """A table of entries, with their nodes in the last column if the broker is one of several."""
    if any("node" in each for each in entries):
        print_table([*header, "NODE"], [[*row(each), each["node"]] for each in entries])
    else:
        print_table(header, [row(each) for each in entries])


def print_page(
    found: dict[str, Any], as_json: bool, limit: int, header: Sequence[str], row: Callable[[Any], Row]
) -> None:
    """The first entries of a list as JSON or as a table, and whether it goes on."""
    print_answer(found, as_json, lambda: print_entries(header, found["entries"], row))
    if found["cursor"] and not as_json:
        note(f"There are more than these {limit}: --limit N lists as many, --limit 0 all.")


def print_table(header: Sequence[str], rows: Iterable[Row]) -> None:
    """Columns with a header on a terminal; elsewhere a line for each row, with tabs and no header."""
    shown = [[printable(str(cell), sys.maxsize) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in shown:
            click.echo("\t".join(row))
        return
    if not shown:
        return
    widths = [max(map(len, column)) for column in zip(header, *shown, strict=True)]
    for row in (list(header), *shown):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def note(sentence: str) -> None:
    """Tell people on standard error, where it is in the way of no program."""
    click.echo(sentence, err=True)


def ask_each(names: Iterable[T], ask: Callable[[T], object]) -> tuple[list[T], list[T]]:
    """Ask about each name once. Return the names of what there was, and of what was not there, which are noted."""
    found: list[T] = []
    missing: list[T] = []
    for name in dict.fromkeys(names):
        try:
            ask(name)
            found.append(name)
        except NotFound as error:
            missing.append(name)
            note(f"Error: {error.message}")
    return found, missing


def time_of(value: str | None) -> str:
    """A time of an answer, in UTC and whole seconds."""
    if value is None:
        return "-"
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
