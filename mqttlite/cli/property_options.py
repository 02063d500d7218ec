"""`-D COMMAND NAME VALUE [VALUE]`: the properties of MQTT 5.0 on the command line.

`wire` knows which packet may hold which property. Invariant: nothing here has seen a socket.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import click

from mqttlite.wire import constants
from mqttlite.wire.properties import NONE, WILL, Properties, encode_properties

_SEPARATOR: Final = "\0"  # cannot be in an argument of a program

_PACKETS: Final = {
    "connect": constants.CONNECT,
    "publish": constants.PUBLISH,
    "subscribe": constants.SUBSCRIBE,
    "unsubscribe": constants.UNSUBSCRIBE,
    "disconnect": constants.DISCONNECT,
    "will": WILL,
}

_KINDS: Final[dict[str, Callable[[str], object]]] = {
    **dict.fromkeys(
        (
            "maximum-packet-size",
            "message-expiry-interval",
            "payload-format-indicator",
            "receive-maximum",
            "request-problem-information",
            "request-response-information",
            "session-expiry-interval",
            "topic-alias-maximum",
            "will-delay-interval",
        ),
        int,
    ),
    **dict.fromkeys(("authentication-method", "content-type", "reason-string", "response-topic"), str),
    **dict.fromkeys(("authentication-data", "correlation-data"), str.encode),
}


class GivenProperties(dict[str, Properties]):
    """Properties by command; a command without any has `NONE`."""

    def __missing__(self, command: str) -> Properties:
        return NONE


Parameters: TypeAlias = Sequence[click.Parameter]


def gather_properties(args: list[str], parameters: Parameters) -> list[str]:
    """The arguments with the words behind each -D as one word.

    Walks them as click will, so that `-m -D` stays a message.
    """
    widths = {
        name: 0 if parameter.is_flag else parameter.nargs
        for parameter in parameters
        if isinstance(parameter, click.Option)
        for name in parameter.opts
    }
    out: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        out.append(word)
        if word == "--":
            break
        if word in ("-D", "--property"):
            count = 4 if rest[1:2] == ["user-property"] else 3
            if len(rest) < count:
                raise click.UsageError(f"{word} needs COMMAND NAME VALUE; user-property needs two values.")
            out.append(_SEPARATOR.join(rest[:count]))
            del rest[:count]
        elif word.startswith("-"):
            count = _values_after(word, widths)
            out += rest[:count]
            del rest[:count]
    return out + rest


def _values_after(word: str, widths: dict[str, int]) -> int:
    """How many of the next words belong to an option, or to the last of a bundle of letters such as -vt."""
    if word.startswith("--"):
        return widths.get(word, 0)
    for at, letter in enumerate(word[1:], start=2):
        width = widths.get(f"-{letter}", 0)
        if width:
            return 0 if word[at:] else width
    return 0


def read_properties(words: Sequence[str], commands: Sequence[str]) -> GivenProperties:
    """The properties that `gather_properties` gathered, by command. Raises `click.UsageError` for one that MQTT does
    not have."""
    given = GivenProperties()
    for joined in words:
        command, name, *values = joined.split(_SEPARATOR)
        if command not in commands:
            raise click.UsageError(f"-D {command}: there are properties for {', '.join(commands)} here.")
        properties = given.setdefault(command, Properties())
        try:
            _set(properties, name, values)
            encode_properties(properties, _PACKETS[command])
        except ValueError as error:
            raise click.UsageError(f"-D {command} {name} {' '.join(values)}: {error}.") from None
    return given


def _set(properties: Properties, name: str, values: list[str]) -> None:
    if name == "user-property":
        properties.user_properties.append((values[0], values[1]))
    elif name == "subscription-identifier":
        properties.subscription_identifiers = [int(values[0])]
    elif name in _KINDS:
        setattr(properties, name.replace("-", "_"), _KINDS[name](values[0]))
    else:
        raise ValueError(f"there is no property of that name; there are {', '.join(sorted(_KINDS))}, user-property")
