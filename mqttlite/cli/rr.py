"""`mqttlite rr`: publish a request and print its answer, with mosquitto_rr's flags and meanings.

How it connects lives in `options`. Invariant: it exits with 0 only after an answer was printed.
"""

import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from mqttlite.cli.options import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_TIMEOUT,
    MqttCommand,
    Shared,
    WrongUsage,
    run,
    sentence,
    shared_options,
)
from mqttlite.cli.output_format import NotJson, Piece, output_of
from mqttlite.cli.property_options import GivenProperties
from mqttlite.cli.pub import read_payload
from mqttlite.client import AnswerTimeout, Client
from mqttlite.client.topics import check_name

_TIMEOUT_S: Final = 30.0


@click.command(
    cls=MqttCommand,
    name="rr",
    epilog="Exit codes: 0, answered; 1, no connection, refused by the broker, no subscriber, or the responder "
    "failed; 2, wrong usage; 27, time is up (-W); 130, interrupted.",
)
@shared_options
@click.option("-t", "--topic", metavar="TOPIC", help="Where to publish the request.")
@click.option("-e", "--response-topic", metavar="TOPIC", help="Where the answer comes; with 5.0 one is made.")
@click.option("-m", "--message", metavar="TEXT", help="The payload to publish.")
@click.option("-f", "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Publish a file.")
@click.option("-s", "--stdin-file", "whole", is_flag=True, help="Publish all of standard input as one message.")
@click.option("-n", "--null-message", "null", is_flag=True, help="Publish an empty message.")
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before the answer.")
@click.option("-F", "--output", "output", metavar="FORMAT", help="Print the answer like this, as with sub.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON, like -F %j.")
@click.option("-N", "no_eol", is_flag=True, help="Print no end of line behind the answer.")
@click.option("-R", is_flag=True, expose_value=False, help="Take no retained answer. This is always so.")
@click.option(
    "-W",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=_TIMEOUT_S,
    show_default=True,
    help="How long to wait for the answer.",
)
def command(
    topic: str | None,
    response_topic: str | None,
    message: str | None,
    file: Path | None,
    whole: bool,
    null: bool,
    verbose: bool,
    output: str | None,
    as_json: bool,
    no_eol: bool,
    timeout_s: float,
    **shared_values: Any,
) -> None:
    """Publish a request and print its answer.

    One of -m, -f, -s and -n gives the request. With MQTT 5.0 the request says where its answer goes. Older versions
    cannot say it: there -e names the topic that the other side answers to. With -q 1 or 2 an mqttlite broker says at
    once when no client is subscribed to the request's topic.
    """
    shared = Shared(**shared_values)
    topic = topic if topic is not None else shared.url_topic()
    if topic is None:
        raise click.UsageError("Where to? Name a topic with -t.")
    if sum((message is not None, file is not None, whole, null)) != 1:
        raise click.UsageError("What? Give one of -m, -f, -s and -n.")
    if as_json:
        if output is not None:
            raise click.UsageError("--json is a format: leave -F out.")
        output = "%j"
    if response_topic is None and shared.version != "5.0":
        raise click.UsageError(f"MQTT {shared.version} cannot say where the answer goes: name the topic with -e.")
    given = shared.given_properties(("connect", "publish", "disconnect", "will"))
    try:
        for each in (topic, response_topic):
            if each is not None:
                check_name(each)
        piece = output_of(output, verbose, no_eol)
    except ValueError as error:
        raise WrongUsage(sentence(error)) from None
    payload = message.encode(errors="surrogateescape") if message is not None else read_payload(file, whole)
    client = shared.client(given, reconnect=False)
    run(shared, _ask(client, topic, payload, response_topic, timeout_s, piece, shared, given))


async def _ask(
    client: Client,
    topic: str,
    payload: bytes,
    reply_to: str | None,
    timeout_s: float,
    piece: Piece,
    shared: Shared,
    given: GivenProperties,
) -> int:
    async with client:
        try:
            properties = given["publish"] if shared.version == "5.0" else None
            answer = await client.request(
                topic, payload, shared.qos, reply_to=reply_to, properties=properties, timeout=timeout_s
            )
        except AnswerTimeout as error:
            shared.complain(f"Error: {error}")
            return EXIT_TIMEOUT
        try:
            line = piece(answer, time.time())
        except NotJson as error:
            shared.complain(f"Error: {error}")
            return EXIT_FAILED
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        await client.disconnect(properties=given["disconnect"])
    return EXIT_OK
