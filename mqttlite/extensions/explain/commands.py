"""`mqttlite explain`: what would become of a message or a subscription, and why.

A running broker is asked at its admin socket, or over HTTP; without one, a configuration says what it can. How it is
found is in `explanations`. Invariant: it publishes nothing and subscribes no client.
"""

import base64
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

import click
from click.core import ParameterSource

from mqttlite.cli.ask_admin import TIMEOUT_S, Asker, Unreachable, asker_of, print_sentence
from mqttlite.cli.ask_options import data_dir_option, json_option, timeout_option, url_options, with_options

MAX_PAYLOAD: Final = 32_768
"""Of a payload that is sent along: with its base64 it still fits a request's head."""

MAX_PAYLOAD_IN_URL: Final = 8_192
"""The same over HTTP: proxies and the gateway take no longer addresses than some 16 KB."""

EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 3

_EPILOG: Final = """\b
Exit codes:
  0  it would be accepted
  1  it would be refused
  2  wrong usage, or a wrong file
  3  no broker can be reached there
"""

_WHY: Final = {
    "offline": "it is not connected",
    "window_full": "it has not acknowledged enough of the messages before",
    "backpressure": "its connection takes no more bytes now",
    "qos0_offline": "it is not connected, and messages of QoS 0 do not wait",
    "queue_full": "its queue is full",
    "publisher_waits": "its queue is full, and the publisher waits while it reads",
    "buffer_full": "its connection takes no bytes, and what may wait for it does",
    "rate_limited": "it gets no more a second",
    "packet_too_large": "its Maximum Packet Size is smaller",
    "not_authorized": "no rule lets it receive this topic",
    "filter_mismatch": "its filter does not let it pass",
    "no_local": "it is its own message, and its subscription has No Local",
}

_options: Final = with_options(
    url_options(),
    click.option("--as", "user", metavar="USER", help="The user; without it the client is anonymous."),
    click.option("-i", "--client-id", metavar="ID", default="", help="Its session and connection count, too."),
    click.option("-g", "--group", "groups", metavar="NAME", multiple=True, help="A group of the user; repeatable."),
    click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="QoS."),
    click.option("-c", "--config", "config_path", metavar="FILE.toml", help="Ask this configuration and no broker."),
    data_dir_option(),
    json_option(),
    timeout_option(TIMEOUT_S, "the broker"),
)
"""The options of both commands."""


@click.group()
def command() -> None:
    """Say what would become of a message or a subscription, and why.

    The broker goes through all that it does with a real one, and does nothing.
    """


@command.command(epilog=_EPILOG)
@click.argument("topic")
@click.option("-r", "--retain", is_flag=True, help="The message is to be retained.")
@click.option(
    "--payload-bytes", type=click.IntRange(0, 16 * 1_048_576), default=1, show_default=True, help="Size of the payload."
)
@click.option("-m", "--message", "payload", metavar="TEXT", help="The payload: schemas and filters are asked, too.")
@click.option("-s", "--stdin", "from_stdin", is_flag=True, help="Read the payload from standard input.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="A user property; repeatable.")
@click.option("--content-type", metavar="TYPE", help="The Content Type of the message.")
@_options
def publish(
    topic: str,
    retain: bool,
    payload_bytes: int,
    payload: str | None,
    from_stdin: bool,
    properties: tuple[str, ...],
    content_type: str | None,
    **options: Any,
) -> None:
    """Say who may publish to TOPIC, and who would get the message."""
    if payload is not None and from_stdin:
        raise click.UsageError("-m and -s exclude each other.")
    if any("=" not in each for each in properties):
        raise click.UsageError("--property takes NAME=VALUE.")
    body = sys.stdin.buffer.read(MAX_PAYLOAD + 1) if from_stdin else None
    if payload is not None:
        body = payload.encode(errors="surrogateescape")
    most = MAX_PAYLOAD if options["url"] is None else MAX_PAYLOAD_IN_URL
    if body is not None and len(body) > most:
        raise click.UsageError(f"The payload is longer than {most} bytes: --payload-bytes asks about its size.")
    found = _ask(
        "publish",
        options,
        {"topic": topic},
        retain=retain,
        payload_bytes=payload_bytes,
        payload=None if body is None else base64.b64encode(body).decode(),
        payload_encoding=None if body is None else "base64",
        properties=list(properties),
        content_type=content_type,
    )
    _show(found, options["as_json"], _about_publish)


@command.command(epilog=_EPILOG)
@click.argument("topic_filter", metavar="FILTER")
@_options
def subscribe(topic_filter: str, **options: Any) -> None:
    """Say who may subscribe to FILTER, and what would come at once."""
    _show(_ask("subscribe", options, {"filter": topic_filter}), options["as_json"], _about_subscribe)


def _ask(action: str, options: dict[str, Any], what: dict[str, str], **more: Any) -> dict[str, Any]:
    if options["config_path"] is not None:
        context = click.get_current_context()
        from_environment = context.get_parameter_source("url") == ParameterSource.ENVIRONMENT
        if options["data_dir"] is not None or (options["url"] is not None and not from_environment):
            raise click.UsageError("Ask a broker with --data-dir or --url, or a configuration with -c, not both.")
        return {"live": False} | _ask_config(action, options, what, more)
    try:
        asker: Asker = asker_of(*(options[each] for each in ("data_dir", "url", "token", "ca_file", "timeout_s")))
        found: dict[str, Any] = {"live": True} | asker.ask(
            "GET",
            *("explain", action),
            client_id=options["client_id"],
            user=options["user"],
            qos=options["qos"],
            groups=list(options["groups"]),
            **what,
            **more,
        )
    except Unreachable as error:
        advice = "" if options["url"] is not None else " With -c FILE.toml a configuration is asked instead."
        click.echo(f"{error.message}{advice}", err=True)
        sys.exit(EXIT_UNREACHABLE)
    return found


def _ask_config(action: str, options: dict[str, Any], what: dict[str, str], more: dict[str, Any]) -> dict[str, Any]:
    """The answer of a configuration, as of a broker without clients."""
    from mqttlite.extensions.explain.explanations import properties_of
    from mqttlite.extensions.explain.planned import explanations_of  # here, for it takes a while

    explanations = explanations_of(options["config_path"])
    who = (options["client_id"], options["user"])
    if action == "publish":
        return asdict(
            explanations.publish(
                *(*who, what["topic"], more["payload_bytes"]),
                payload=None if more["payload"] is None else base64.b64decode(more["payload"]),
                properties=properties_of(more["properties"], more["content_type"]),
                qos=options["qos"],
                retain=more["retain"],
                groups=options["groups"],
            )
        )
    return asdict(explanations.subscribe(*who, what["filter"], qos=options["qos"], groups=options["groups"]))


def _show(found: dict[str, Any], as_json: bool, about: Callable[[dict[str, Any]], Iterator[str]]) -> None:
    print_sentence(found, as_json, "\n".join(about(found)))
    sys.exit(0 if found["allowed"] else EXIT_REFUSED)


def _head(found: dict[str, Any]) -> Iterator[str]:
    yield from (f"login: {line}" for line in found["login"])
    if found["client_id"]:
        yield f"client {found['client_id']}: {'' if found['connected'] else 'not '}connected"
    if found["allowed"]:
        yield f"accepted: {found['reason']}"
    else:
        yield f"refused with 0x{found['reason_code']:02X}: {found['reason']}"


def _about_publish(found: dict[str, Any]) -> Iterator[str]:
    yield from _head(found)
    if not found["allowed"]:
        return
    if found["delay_s"] is not None:
        yield f"delayed: published to {found['topic']} after {found['delay_s']} s; as things are now:"
    if found["has_hook"]:
        yield "hook: one is asked first, and may change or refuse the message"
    if found["schema"]:
        yield f"schema: {found['schema']}"
    if found["block_s"]:
        yield f"held back for up to {found['block_s']:g} s, and then refused with 0x97: {found['block_reason']}"
    if found["wait_for"]:
        yield f"held back for up to {found['wait_s']:g} s, while {found['wait_for']} reads: its queue has no room"
    yield f"retained: {'yes' if found['retained'] else 'no'}"
    if not found["live"]:
        yield "receivers: not known, for no broker was asked"
        return
    receivers = found["receivers"]
    if not receivers:
        yield "receivers: none, no client subscribes to it"
    for each in receivers:
        if each["sink"] is not None:
            yield f"{each['sink']}: {_sink_outcome(each)}"
        elif each["group"] is None:
            yield f"{each['client_id']}: {_outcome(each)}"
    for group in dict.fromkeys(each["group"] for each in receivers if each["group"] is not None):
        members = [each for each in receivers if each["group"] == group]
        yield f"one of {len(members)} members of {group}:"
        for each in members:
            yield f"  {each['client_id']}: {_outcome(each)}{', and it is its turn' * each['next']}"
    if found["unnamed_receivers"]:
        yield f"and {found['unnamed_receivers']} more receivers"


def _sink_outcome(receiver: dict[str, Any]) -> str:
    reason = _WHY.get(receiver["reason"], receiver["reason"])
    detail = f" ({receiver['rule']})" if receiver["rule"] else ""
    outcome = "gets nothing" if receiver["outcome"] == "excluded" else receiver["outcome"]
    return f"{outcome}{': ' * bool(reason)}{reason}{detail}"


def _outcome(receiver: dict[str, Any]) -> str:
    why = _WHY.get(receiver["reason"], receiver["reason"])
    if receiver["outcome"] == "excluded":
        if receiver["reason"] == "filter_mismatch":
            return f"gets nothing: {why} ({receiver['rule']})"
        return f"gets nothing: {receiver['rule'] or why}"
    if receiver["outcome"] == "dropped":
        return f"dropped: {why}"
    sent = f"{receiver['outcome']} at QoS {receiver['qos']}{', ' * bool(receiver['rule'])}{receiver['rule']}"
    return f"{sent}: {why}" if why else sent


def _about_subscribe(found: dict[str, Any]) -> Iterator[str]:
    yield from _head(found)
    if found["allowed"]:
        yield f"granted: QoS {found['reason_code']}"
    if found["allowed"] and found["has_hook"]:
        yield "hook: one is asked, too, and may refuse the subscription"
    if found["allowed"] and found["live"]:
        yield f"retained messages that would come: {found['retained']}"
    if found["allowed"] and found["retained_denied"]:
        yield f"retained messages that no rule lets it receive: {found['retained_denied']}"
