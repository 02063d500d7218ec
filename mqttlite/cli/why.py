"""`mqttlite why`: what became of a message, in the sentences of the broker's delivery log.

Their words are made there. Invariant: only findings of the delivery log go to standard output.
"""

import json
import sys
import time
from typing import Any, Final
from urllib.parse import urlencode

import click

from mqttlite.cli.ask import EXIT_FAILED, ask_json, place_options
from mqttlite.cli.asker import Place, Unreachable, note_silent
from mqttlite.cli.following import Following

FOLLOW_S: Final = 1.0
"""How often a command that follows asks for what is new."""

EXIT_INTERRUPTED: Final = 130


@click.command(
    epilog="Exit codes: 0, the log knows of it; 1, it does not, or the broker does not answer; 2, wrong usage; "
    "130, --follow was interrupted.",
)
@click.argument("target", metavar="[MESSAGE_ID|TOPIC|CLIENT_ID]", required=False)
@click.option("--client", metavar="CLIENT_ID", help="Only what became of it for this client, or what it published.")
@click.option(
    "--follow", metavar="FILTER", help="Trace every message of a filter from now on, until Ctrl-C, and print each."
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON; with --follow a line for each.")
@place_options
def command(
    target: str | None,
    client: str | None,
    follow: str | None,
    as_json: bool,
    where: Place,
    timeout_s: float,
) -> None:
    """Say what became of a message, or of the latest ones of a topic or filter.

    A message id is in each sentence, in the dataset, and in acknowledgements (user property message-id). Without a
    target, --client is about all messages from and to a client. The broker keeps a delivery log if its configuration
    has a section [delivery_log], and while --follow runs.
    """
    if follow is not None and (target is not None or client is not None):
        raise click.UsageError("--follow FILTER stands alone.")
    if follow is None and not target and client is None:
        raise click.UsageError("Of what? Name a message id or a topic, or --client, or --follow.")
    try:
        if follow is not None:
            _follow(where, follow, as_json, timeout_s)
        query = {"target": target or "", **({} if client is None else {"client": client})}
        found = _ask(where, query, timeout_s)
    except Unreachable as error:
        click.echo(error, err=True)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    known = found["known"]
    if as_json and known:
        click.echo(json.dumps(found))
    else:
        for sentence in found["sentences"]:
            click.echo(sentence, err=not known)
    if not known:
        sys.exit(EXIT_FAILED)


def _ask(where: Place, query: dict[str, str], timeout_s: float) -> dict[str, Any]:
    """The answer to a question. Raises `Unreachable`."""
    found = ask_json(where, f"/why?{urlencode(query)}", timeout_s)
    note_silent(found, set())
    return _joined(found)


def _joined(found: dict[str, Any]) -> dict[str, Any]:
    """What all nodes know, where the broker is one of several."""
    others = [each for each in found.pop("others", ()) if each["status"] == 200]
    found.pop("silent", None)
    parts = [(found.pop("node", ""), found), *((each["node"], each["answer"]) for each in others)]
    known = [(node, part) for node, part in parts if part.get("known")]
    if not others or not known:
        return found
    return {
        "sentences": [f"At node {node}: {sentence}" for node, part in known for sentence in part["sentences"]],
        "entries": [{**entry, "node": node} for node, part in known for entry in part["entries"]],
        "known": True,
    }


def _follow(where: Place, topic_filter: str, as_json: bool, timeout_s: float) -> None:
    """Print what becomes of the messages of a filter, at all nodes, until interrupted. Raises `Unreachable`."""
    following = Following(where, topic_filter, timeout_s)
    list(following.look())
    click.echo(f"Every message on {topic_filter} is traced from now on, until Ctrl-C.", err=True)
    while True:
        time.sleep(FOLLOW_S)
        for node, found in following.look():
            if as_json:
                for entry in found["entries"]:
                    click.echo(json.dumps({**entry, "node": node} if node else entry))
            else:
                for sentence in found["sentences"]:
                    click.echo(f"At node {node}: {sentence}" if node else sentence)
