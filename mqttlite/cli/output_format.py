"""`sub -F`: the output format of mosquitto_sub, compiled once and applied to each message.

Where the bytes go is known to `sub`. Invariant: a format that compiles can print any message, but for %J, which
needs JSON as its payload.
"""

import json
import re
import time
from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

from mqttlite.client import Message
from mqttlite.wire.properties import Properties

Piece: TypeAlias = Callable[[Message, float], bytes]
"""A part of the output: of a message and the time (s) at which it came."""


class NotJson(ValueError):
    """%J met a payload that is none."""


_FIELD: Final = re.compile(r"([-0]*)(\d*)(?:\.(\d+))?(.)", re.DOTALL)

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "a": b"\a", "e": b"\x1b", "v": b"\v", "\\": b"\\"}


def compile_format(text: str) -> Piece:
    """A format as a function. Raises `ValueError` with the place of what is wrong."""
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        mark = text[at]
        if mark not in "%@\\":
            end = at
            while end < len(text) and text[end] not in "%@\\":
                end += 1
            pieces.append(_constant(text[at:end].encode()))
        elif at + 1 == len(text):
            raise ValueError(f"the format {text!r} ends with a single {mark}")
        elif mark == "%":
            field = _FIELD.match(text, at + 1)
            if field is None:
                raise ValueError(f"the format {text!r} ends within %")
            pieces.append(_field(*field.groups()))
            end = field.end()
        else:
            pieces.append(_escape(text[at + 1]) if mark == "\\" else _time(text[at + 1]))
            end = at + 2
        at = end
    return lambda message, now: b"".join([piece(message, now) for piece in pieces])


def _constant(raw: bytes) -> Piece:
    return lambda _message, _now: raw


def _escape(letter: str) -> Piece:
    if letter not in _ESCAPES:
        known = " ".join([f"\\{name}" for name in _ESCAPES])
        raise ValueError(f"the format has \\{letter}; there are {known}")
    return _constant(_ESCAPES[letter])


def _time(letter: str) -> Piece:
    if letter == "@":
        return _constant(b"@")
    if letter == "N":
        return lambda _message, now: b"%09d" % (now % 1 * 1e9)
    return lambda _message, now: time.strftime(f"%{letter}", time.localtime(now)).encode()


def _field(flags: str, width: str, precision: str | None, letter: str) -> Piece:
    """One % with its flags: `-` to the left, `0` zeros, a least width, a greatest length of text."""
    if letter == "%":
        return _constant(b"%")
    value = _VALUES.get(letter)
    if value is None:
        raise ValueError(f"the format has %{letter}; there are {' '.join('%' + name for name in sorted(_VALUES))} %%")
    if not width and precision is None:
        return value
    at_least = int(width or 0)
    at_most = int(precision) if precision is not None and letter in "tp" else None
    zeros = "0" in flags and "-" not in flags and letter in "lmqrxXEFdA"

    def padded(message: Message, now: float) -> bytes:
        raw = value(message, now)[:at_most]
        if "-" in flags:
            return raw.ljust(at_least)
        return raw.rjust(at_least, b"0" if zeros else b" ")

    return padded


def _iso(now: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(now))


def _text(name: str) -> Piece:
    def read(message: Message, _now: float) -> bytes:
        value = getattr(message.properties, name)
        return b"" if value is None else value if isinstance(value, bytes) else str(value).encode()

    return read


def _user_properties(message: Message, _now: float) -> bytes:
    return " ".join([f"{name}:{value}" for name, value in message.properties.user_properties]).encode()


def _json(message: Message, now: float, payload: object) -> bytes:
    """A message as mosquitto_sub prints it."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
    row: dict[str, object] = {
        "tst": f"{seconds}.{int(now % 1 * 1e6):06d}Z{time.strftime('%z', time.localtime(now))}",
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        row["mid"] = message.packet_id
    if properties := _json_properties(message.properties):
        row["properties"] = properties
    row["payload"] = payload
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _json_properties(properties: Properties) -> dict[str, object]:
    row: dict[str, object] = {}
    if properties.user_properties:
        row["user-properties"] = dict(properties.user_properties)
    for name, value in properties.present():
        if name == "subscription_identifiers":
            row["subscription-identifier"] = value
        elif name != "user_properties":
            row[name.replace("_", "-")] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return row


def _json_with_text(message: Message, now: float) -> bytes:
    return _json(message, now, message.payload.decode(errors="replace") if message.payload else None)


def _json_with_json(message: Message, now: float) -> bytes:
    try:
        payload = json.loads(message.payload, parse_constant=_refuse) if message.payload else None
    except ValueError:
        raise NotJson(f"The payload of the message to {message.topic!r} is not JSON.") from None
    return _json(message, now, payload)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_VALUES: Final[dict[str, Piece]] = {
    "t": lambda message, _now: message.topic.encode(),
    "p": lambda message, _now: message.payload,
    "q": lambda message, _now: b"%d" % message.qos,
    "r": lambda message, _now: b"%d" % message.retain,
    "d": lambda message, _now: b"%d" % message.dup,
    "l": lambda message, _now: b"%d" % len(message.payload),
    "m": lambda message, _now: b"%d" % message.packet_id,
    "x": lambda message, _now: message.payload.hex().encode(),
    "X": lambda message, _now: message.payload.hex().upper().encode(),
    "j": _json_with_text,
    "J": _json_with_json,
    "I": lambda _message, now: _iso(now).encode(),
    "U": lambda _message, now: b"%.9f" % now,
    "A": _text("topic_alias"),
    "C": _text("content_type"),
    "D": _text("correlation_data"),
    "E": _text("message_expiry_interval"),
    "F": _text("payload_format_indicator"),
    "P": _user_properties,
    "R": _text("response_topic"),
    "S": lambda message, _now: " ".join(map(str, message.properties.subscription_identifiers)).encode(),
}


def output_of(text: str | None, verbose: bool, no_eol: bool) -> Piece:
    """How -F, -v and -N have messages printed. Raises `ValueError` for a format that is none."""
    end = b"" if no_eol else b"\n"
    if text is not None:
        piece = compile_format(text)
        return lambda message, now: piece(message, now) + end
    if verbose:  # an empty message as mosquitto_sub shows it, so that it is seen
        return lambda message, _now: b"%b %b%b" % (message.topic.encode(), message.payload or b"(null)", end)
    return lambda message, _now: message.payload + end
