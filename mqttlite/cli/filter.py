"""`mqttlite filter test`: what a filter says of a message, part by part.

The language is `filters`, which the broker has, too. Invariant: the verdict is the one that a broker gives.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from mqttlite.cli.options import EXIT_OK, WrongUsage
from mqttlite.filters import Evaluated, Fields, Filter, FilterError
from mqttlite.filters.json_payload import MISSING
from mqttlite.topics.names import check_name
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.properties import Properties

EXIT_KEPT_BACK: Final = 1

_SHOWN_CHARACTERS: Final = 60
"""So much of a value is shown."""


@click.group(name="filter")
def command() -> None:
    """Try out filters: the expressions that say which messages a subscription gets."""


@command.command(
    epilog="Exit codes: 0, the message passes; 1, it does not; 2, wrong usage, or the expression is none.",
)
@click.argument("expression")
@click.argument("message", required=False)
@click.option("-t", "--topic", default="topic", show_default=True, help="The topic of the message.")
@click.option("-m", "--message", "payload", metavar="TEXT", help="The payload, too.")
@click.option("-s", "--stdin", "from_stdin", is_flag=True, help="Read the payload from standard input.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="A user property; may be repeated.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("-r", "--retain", is_flag=True, help="The message is published with RETAIN.")
@click.option("--json", "as_json", is_flag=True, help="Print the tree as JSON.")
def test(
    expression: str,
    message: str | None,
    topic: str,
    payload: str | None,
    from_stdin: bool,
    properties: tuple[str, ...],
    qos: int,
    retain: bool,
    as_json: bool,
) -> None:
    """Say whether a message with the payload MESSAGE passes EXPRESSION, with the result of each part and what it found.

    mqttlite filter test 'payload.total > 1000 AND attributes.region = "us"' '{"total": 1200}' --property region=us
    """
    if (message is not None) + (payload is not None) + from_stdin > 1:
        raise click.UsageError("MESSAGE, -m and -s exclude each other.")
    payload = message if payload is None else payload
    compiled = compiled_or_wrong_usage(expression)
    try:
        check_name(topic.encode(errors="replace"))
    except TopicNameInvalid as error:
        raise click.UsageError(f"{error}.") from None
    body = sys.stdin.buffer.read() if from_stdin else (payload or "").encode(errors="surrogateescape")
    fields = Fields(
        topic.encode(errors="replace"),
        body,
        qos,
        retain,
        Properties(user_properties=[_pair(each) for each in properties]),
    )
    told = compiled.explain(fields)
    if as_json:
        click.echo(json.dumps(_as_json(told), ensure_ascii=False))
    else:
        for line in _lines(told, 0):
            click.echo(line)
    sys.exit(EXIT_OK if told.result else EXIT_KEPT_BACK)


def compiled_or_wrong_usage(expression: str) -> Filter:
    """The filter; what is wrong with it is wrong usage, and shown in its place."""
    try:
        return Filter(expression)
    except FilterError as error:
        at = error.position - 1
        start = expression.rfind("\n", 0, at) + 1
        line = expression[start:].partition("\n")[0]
        raise WrongUsage(f"The filter is wrong: {error}.\n  {line}\n  {' ' * (at - start)}^") from None


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise click.UsageError(f"{text!r} is no user property: write NAME=VALUE.")
    return name, value


def _lines(part: Evaluated, level: int) -> Iterator[str]:
    found = "" if part.parts else f": {_shown(part.found)}"
    yield f"{'  ' * level}{str(part.result).lower():<5}  {part.text}{found}"
    for each in part.parts:
        yield from _lines(each, level + 1)


def _shown(found: object) -> str:
    """The value that a condition looked at, in a line."""
    if found is MISSING or found == []:
        return "missing"
    text = json.dumps(found, ensure_ascii=False)
    return f"{text[:_SHOWN_CHARACTERS]}…" if len(text) > _SHOWN_CHARACTERS else text


def _as_json(part: Evaluated) -> dict[str, Any]:
    shown: dict[str, Any] = {"text": part.text, "result": part.result}
    if part.parts:
        shown["parts"] = [_as_json(each) for each in part.parts]
    elif part.found is not MISSING and part.found != []:
        shown["found"] = part.found
    return shown
