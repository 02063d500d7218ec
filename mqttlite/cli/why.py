"""`mqttlite why`: what became of a message, in the sentences of the broker's ledger.

What they say is worded there. Invariant: what the ledger knows goes to standard output, and everything else does not.
"""

import json
import sys
from urllib.parse import urlencode

import click

from mqttlite.cli.ask import EXIT_FAILED, Unreachable, ask, options, place


@click.command(
    epilog="Exit codes: 0, the ledger knows of it; 1, it does not, or the broker does not answer; 2, wrong usage.",
    context_settings={"help_option_names": ["--help"]},
)
@click.argument("target", metavar="MESSAGE_ID|TOPIC")
@click.option("--client", metavar="CLIENT_ID", help="Only what became of it for this client, or what it published.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@options
def command(
    target: str, client: str | None, as_json: bool, url: str | None, config_path: str | None, timeout_s: float
) -> None:
    """Say what became of a message, or of the latest ones of a topic or filter.

    The broker keeps a ledger if its configuration has a section [ledger]; this asks it on the port of [metrics].
    """
    query = {"target": target} if client is None else {"target": target, "client": client}
    try:
        answer = ask(place(url, config_path), f"/why?{urlencode(query)}", timeout_s)
        if answer.status != 200:
            raise Unreachable(answer.sentence)
        found = json.loads(answer.body)
    except Unreachable as error:
        click.echo(error, err=True)
        sys.exit(EXIT_FAILED)
    except ValueError:
        click.echo("The answer is no JSON; is that the port of [metrics]?", err=True)
        sys.exit(EXIT_FAILED)
    known = found["known"]
    if as_json and known:
        click.echo(json.dumps(found))
    else:
        for sentence in found["sentences"]:
            click.echo(sentence, err=not known)
    if not known:
        sys.exit(EXIT_FAILED)
