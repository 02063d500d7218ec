"""`mqttlite sub`: subscribe and print what arrives, with mosquitto_sub's flags and meanings.

Formats are in `output_format`, connecting in `options`. Invariant: what was printed is flushed before we wait for more.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
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
from mqttlite.cli.sub_exec import DEFAULT_TIMEOUT_S, QUEUE, Work, work
from mqttlite.client import Client, Filter, Message, SubscribeRefused, matches
from mqttlite.client.topics import check_filter
from mqttlite.wire.reason_codes import describe

_FLUSH_BYTES: Final = 65_536
"""So much output is written at once, even while more messages wait."""

EXIT_TERMINATED: Final = 143


@dataclass(frozen=True, slots=True)
class Listening:
    """The options of `sub`: what to subscribe to, what to print, when to stop."""

    topics: tuple[str, ...]
    unsubscribe: tuple[str, ...]
    filter_out: tuple[str, ...]
    where: str | None
    """For the broker."""
    wanted: Filter | None
    """For us, where the version of the protocol does not let the broker know."""
    output: Piece
    count: int | None
    timeout_s: float | None
    exit_after_suback: bool
    no_retained: bool
    retained_only: bool
    remove_retained: bool
    retain_as_published: bool


@click.command(
    cls=MqttCommand,
    name="sub",
    epilog="Exit codes: 0, -C or -E fulfilled, or the reader of the output has gone; 1, no connection, or refused by "
    "the broker; 2, wrong usage; 27, time is up (-W); 130, interrupted; 143, terminated. A connection that is lost "
    "later is made again.",
)
@shared_options
@click.option(
    "-t", "--topic", "topics", metavar="FILTER", multiple=True, help="The filter to subscribe to; repeatable."
)
@click.option(
    "-T", "--filter-out", metavar="FILTER", multiple=True, help="Do not print messages of this filter; repeatable."
)
@click.option(
    "-U", "--unsubscribe", metavar="FILTER", multiple=True, help="The filter to unsubscribe from; repeatable."
)
@click.option("--where", metavar="EXPRESSION", help="Only messages that pass this filter: the broker asks it.")
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before each message.")
@click.option("-F", "--output", "output", metavar="FORMAT", help="Print each message like this: %t %p %q %r %j %x …")
@click.option("--json", "as_json", is_flag=True, help="Print each message as JSON, like -F %j.")
@click.option("-N", "no_eol", is_flag=True, help="Print no end of line behind a message.")
@click.option("-C", "count", type=click.IntRange(1), help="Exit after this many messages.")
@click.option("-W", "timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Exit after this time.")
@click.option("-E", "exit_after_suback", is_flag=True, help="Exit once the subscription is acknowledged.")
@click.option("-R", "no_retained", is_flag=True, help="Print no retained messages.")
@click.option("--retained-only", is_flag=True, help="Print retained messages and exit at the first other.")
@click.option("--remove-retained", is_flag=True, help="Remove retained messages from the broker once printed.")
@click.option("--retain-as-published", is_flag=True, help="Keep the retain flag as the publisher set it.")
@click.option(
    "--ack",
    type=click.Choice(["at-once", "after-exec"]),
    default="at-once",
    show_default=True,
    help="When to acknowledge; after-exec: when COMMAND has ended with 0, for $queue/NAME.",
)
@click.option(
    "--exec-timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="How long COMMAND may run.",
)
@click.argument("words", nargs=-1, metavar="[FILTER [COMMAND [ARGUMENT]...]]")
def command(
    topics: tuple[str, ...],
    filter_out: tuple[str, ...],
    unsubscribe: tuple[str, ...],
    where: str | None,
    verbose: bool,
    output: str | None,
    as_json: bool,
    no_eol: bool,
    count: int | None,
    timeout: float | None,
    exit_after_suback: bool,
    no_retained: bool,
    retained_only: bool,
    remove_retained: bool,
    retain_as_published: bool,
    ack: str,
    exec_timeout: float,
    words: tuple[str, ...],
    **shared_values: Any,
) -> None:
    """Subscribe and print what arrives.

    With --where only messages that pass a filter are printed, as in --where 'payload.total > 1000'. An mqttlite broker
    is told with MQTT 5.0 and sends no others; with older versions they are left out here.

    Messages are printed as they are, one to a line; -v and -F print more. Formats are as in mosquitto_sub: %t topic, %p
    payload, %q QoS, %r retained, %l length, %m packet identifier, %x hexadecimal, %j and %J JSON, %I and %U time,
    %P user properties, @ with a letter as in strftime, \\n and \\t.

    With --ack after-exec a COMMAND is run for each message of a queue, as in: sub '$queue/jobs' --ack after-exec
    './work.sh'. It reads the payload from standard input, and finds MQTT_TOPIC, MQTT_MESSAGE_ID, MQTT_ATTEMPT,
    MQTT_ORDERING_KEY and MQTT_PUBLISH_TIME in its environment. When it ends with 0 the message is acknowledged, else it
    is refused, and comes again. One word is for the shell; write -- before a command with options. Then nothing is
    printed but for -v, -F or --json, which adds attempt, exit_code and acknowledged.
    """
    shared = Shared(**shared_values)
    if shared.url_topic() is not None:
        topics = (*topics, str(shared.url_topic()))
    if words and not topics:
        topics, words = words[:1], words[1:]
    if bool(words) != (ack == "after-exec"):
        raise click.UsageError("A command and --ack after-exec go together.")
    if as_json:
        if output is not None:
            raise click.UsageError("--json is a format: leave -F out.")
        output = "%j"
    if not topics and not unsubscribe:
        raise click.UsageError("To what? Name a topic filter with -t.")
    if no_retained and retained_only:
        raise click.UsageError("-R and --retained-only exclude each other.")
    if shared.version != "5.0" and retain_as_published:
        raise click.UsageError(f"--retain-as-published needs MQTT 5.0, and this is {shared.version}.")
    wanted = None if where is None else _filter(where)
    given = shared.given_properties(("connect", "subscribe", "unsubscribe", "disconnect", "will"))
    try:
        for topic_filter in (*topics, *filter_out, *unsubscribe):
            check_filter(topic_filter)
        piece = output_of(output, verbose, no_eol)
    except ValueError as error:
        raise WrongUsage(sentence(error)) from None
    if words:
        _check_exec(topics, shared)
        if unsubscribe or exit_after_suback or retained_only or remove_retained or filter_out:
            raise click.UsageError("-U, -E, -T, --retained-only and --remove-retained do not go with a queue.")
        options = dict(given["subscribe"].user_properties) | ({} if where is None else {"filter": where})
        printed = piece if verbose or output is not None else None
        job = Work(topics[0], words, options, exec_timeout, count, printed, as_json)
        window = {} if given["connect"].receive_maximum is not None else {"receive_maximum": 1}
        run(shared, _execute(shared.client(given, **window), job, timeout, shared, given))
    what = Listening(
        topics,
        unsubscribe,
        filter_out,
        where if shared.version == "5.0" else None,
        wanted if shared.version != "5.0" else None,
        piece,
        count,
        timeout,
        exit_after_suback,
        no_retained,
        retained_only,
        remove_retained,
        retain_as_published,
    )
    run(shared, _listen(shared.client(given), what, shared, given))


def _check_exec(topics: tuple[str, ...], shared: Shared) -> None:
    if len(topics) != 1 or not topics[0].startswith(QUEUE):
        raise click.UsageError("--ack after-exec is for one queue: $queue/NAME.")
    if shared.version != "5.0":
        raise click.UsageError(f"--ack after-exec needs MQTT 5.0, and this is {shared.version}.")


def _filter(expression: str) -> Filter:
    from mqttlite.cli.filter import compiled_or_wrong_usage  # here, so that others start without it

    return Filter(compiled_or_wrong_usage(expression).expression)


async def _listen(client: Client, what: Listening, shared: Shared, given: GivenProperties) -> int:
    """Subscribe and print."""

    async def listen() -> int:
        code = await _subscribe(client, what, shared, given)
        if code == EXIT_OK and not what.exit_after_suback:
            await _print(client, what, shared)
        return code

    return await _until_told(client, listen, what.timeout_s, shared, given)


async def _execute(client: Client, what: Work, timeout_s: float | None, shared: Shared, given: GivenProperties) -> int:
    """Run a command for each message."""
    return await _until_told(client, lambda: work(client, what, shared), timeout_s, shared, given)


async def _until_told(
    client: Client,
    listen: Callable[[], Awaitable[int]],
    timeout_s: float | None,
    shared: Shared,
    given: GivenProperties,
) -> int:
    """Do it, and leave politely, also when we are told to end."""
    task = asyncio.current_task()
    assert task is not None, "the command runs as a task"
    terminated = asyncio.Event()

    def terminate() -> None:
        terminated.set()
        task.cancel()

    with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; a thread that is not the main one
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        async with asyncio.timeout(timeout_s), client:
            code = await listen()
            await client.disconnect(properties=given["disconnect"])
            return code
    except TimeoutError:
        shared.complain("Timed out.")
        return EXIT_TIMEOUT
    except asyncio.CancelledError:
        if not terminated.is_set():
            raise
        return EXIT_TERMINATED


async def _subscribe(client: Client, what: Listening, shared: Shared, given: GivenProperties) -> int:
    """Unsubscribe and subscribe as asked; fails when every filter is refused."""
    if what.unsubscribe:
        await client.unsubscribe(what.unsubscribe, properties=given["unsubscribe"])
    if not what.topics:
        return EXIT_OK
    why = ""
    try:
        codes = await client.subscribe(
            [(topic_filter, shared.qos) for topic_filter in what.topics],
            retain_as_published=what.retain_as_published,
            retain_handling=2 if what.no_retained and shared.version == "5.0" else 0,
            where=what.where,
            properties=given["subscribe"],
        )
    except SubscribeRefused as error:
        codes = error.reason_codes
        why = f", {error.reason_string.rstrip('.')}" if error.reason_string else ""
    refused = [(topic, code) for topic, code in zip(what.topics, codes, strict=True) if code >= 0x80]
    for topic, code in refused:
        shared.complain(f"Error: The subscription to {topic!r} was refused: {describe(code)}{why}.")
    return EXIT_FAILED if len(refused) == len(codes) else EXIT_OK


async def _print(client: Client, what: Listening, shared: Shared) -> None:
    """Print until the count is reached, or for good."""
    printed = 0
    gathered: list[bytes] = []
    gathered_bytes = 0
    try:
        async for message in client.messages:
            if what.retained_only and not message.retain:
                return
            if not _is_wanted(message, what):
                continue
            try:
                line = what.output(message, time.time())
            except NotJson as error:
                shared.complain(f"Error: {error}")
            else:
                gathered.append(line)
                gathered_bytes += len(line)
            if what.remove_retained and message.retain:
                await client.publish(message.topic, None, 1, retain=True)
            printed += 1
            if printed == what.count:
                return
            if gathered_bytes >= _FLUSH_BYTES or not len(client.messages):
                _write(gathered)
                gathered_bytes = 0
    finally:
        _write(gathered)


def _is_wanted(message: Message, what: Listening) -> bool:
    if message.retain and what.no_retained:
        return False
    if what.wanted is not None and not what.wanted.matches(message):
        return False
    return not any(matches(topic_filter, message.topic) for topic_filter in what.filter_out)


def _write(gathered: list[bytes]) -> None:
    """Print what was gathered and flush it: the reader of a pipe sees a message when it comes."""
    if gathered:
        sys.stdout.buffer.write(b"".join(gathered))
        gathered.clear()
        sys.stdout.buffer.flush()
