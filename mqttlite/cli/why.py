"""`mqttlite why`: what became of a message, in the sentences of the broker's ledger.

What they say is worded there. Invariant: what the ledger knows goes to standard output, and everything else does not.
"""

import json
import sys
from typing import Any
from urllib.parse import urlencode

import click

from mqttlite.cli.ask import EXIT_FAILED, Unreachable, ask, options, places


@click.command(
    epilog="Exit codes: 0, the ledger knows of it; 1, it does not, or the broker does not answer; 2, wrong usage.",
    context_settings={"help_option_names": ["--help"]},
)
@click.argument("target", metavar="MESSAGE_ID|TOPIC")
@click.option("--client", metavar="CLIENT_ID", help="Only what became of it for this client, or what it published.")
@click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON, one for each worker that knows.")
@options
def command(
    target: str, client: str | None, as_json: bool, urls: tuple[str, ...], config_path: str | None, timeout_s: float
) -> None:
    """Say what became of a message, or of the latest ones of a topic or filter.

    The broker keeps a ledger if its configuration has a section [ledger]; this asks it on the port of [metrics].
    """
    query = {"target": target} if client is None else {"target": target, "client": client}
    answers: list[dict[str, Any]] = []
    try:
        for url in places(urls, config_path):
            answer = ask(url, f"/why?{urlencode(query)}", timeout_s)
            if answer.status != 200:
                raise Unreachable(answer.sentence)
            answers.append(json.loads(answer.body))
    except Unreachable as error:
        click.echo(error, err=True)
        sys.exit(EXIT_FAILED)
    except ValueError:
        click.echo("The answer is no JSON; is that the port of [metrics]?", err=True)
        sys.exit(EXIT_FAILED)
    known = [each for each in answers if each["known"]]
    for each in known or answers[:1]:
        if as_json and known:
            click.echo(json.dumps(each))
        else:
            for sentence in each["sentences"]:
                click.echo(sentence, err=not known)
    if not known:
        sys.exit(EXIT_FAILED)
