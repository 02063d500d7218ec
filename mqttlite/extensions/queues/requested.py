"""Reads the options of a queue from the user properties of a SUBSCRIBE to it.

The first subscriber may create the queue with them; for later subscribers the queue must match them. Invariant: a
client cannot request more room or time than the defaults of a queue, or an option that makes the broker act in its own
name.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from mqttlite.extensions.queues.options import MIN_IDLE_S, QueueOptions, RetryOptions

FILTER: Final = "filter"
"""The user property for the message filter, which `requested_filters` reads."""

_DEFAULTS: Final = QueueOptions(name="defaults")
_TRUTH: Final = {"true": True, "false": False}
_RETRY: Final = "retry."


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not 0 <= found < float("inf"):
        raise ValueError("it is a number")
    return found


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError("it is a whole number")
    return int(text)


def _up_to(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        found = _whole(text)
        if not 1 <= found <= most:
            raise ValueError(f"a subscriber may ask for 1 to {most}")
        return found

    return read


def _is_true(text: str) -> bool:
    if text not in _TRUTH:
        raise ValueError("it is true or false")
    return _TRUTH[text]


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"it is {' or '.join(words)}")
        return text

    return read


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


_OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "ack-deadline": ("ack_deadline_s", _number),
    "max-attempts": ("max_attempts", _whole),
    "retry-min": ("retry.min_s", _number),
    "retry-max": ("retry.max_s", _number),
    "on-deadline": ("retry.on_deadline", _one_of("back_off", "at_once")),
    "ack": ("ack", _one_of("puback", "explicit")),
    "ordering": ("ordering", _is_true),
    "priority": ("priority", _is_true),
    "max-messages": ("max_messages", _up_to(_DEFAULTS.max_messages)),
    "expiry": ("expiry_s", _up_to(_DEFAULTS.expiry_s)),
    "dead-letter": ("dead_letter", _is_true),
    "dead-letter-on": ("dead_letter_on", _words),
    "on-overflow": ("on_overflow", str),
}
"""The option and the parser for each user property."""


def requested(expression: str, properties: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The options in the user properties, by their names in `QueueOptions`. Other properties are ignored.

    Raises `ValueError`.
    """
    found: dict[str, Any] = {"filter": expression} if expression else {}
    for name, text in properties:
        if name not in _OPTIONS:
            continue
        option, read = _OPTIONS[name]
        if option in found:
            raise ValueError(f"the user property {name} comes twice")
        try:
            found[option] = read(text)
        except ValueError as error:
            raise ValueError(f"the user property {name} is {text[:40]!r}: {error}") from None
    return found


def made_of(name: str, topic_filter: str, asked: dict[str, Any]) -> QueueOptions:
    """The options of a queue that a subscriber creates. Raises `ValueError` and `TypeError`.

    Without a consumer for as long as its messages live, all of them have expired, and so does the queue.
    """
    retry = {option.removeprefix(_RETRY): value for option, value in asked.items() if option.startswith(_RETRY)}
    if "min_s" in retry:
        retry.setdefault("max_s", max(retry["min_s"], _DEFAULTS.retry.max_s))
    elif "max_s" in retry:
        retry["min_s"] = min(retry["max_s"], _DEFAULTS.retry.min_s)
    others = {option: value for option, value in asked.items() if not option.startswith(_RETRY)}
    if others.get("on_overflow", "drop_newest") not in ("drop_newest", "drop_oldest", "dead_letter"):
        raise ValueError("on-overflow is drop_newest, drop_oldest or dead_letter")
    if not {"filter", "expiry"}.issuperset(others.get("dead_letter_on", ())):
        raise ValueError("dead-letter-on is filter, expiry or both")
    idle_expiry_s = max(MIN_IDLE_S, others.get("expiry_s", _DEFAULTS.expiry_s))
    return QueueOptions(
        name=name, filters=(topic_filter,), retry=RetryOptions(**retry), idle_expiry_s=idle_expiry_s, **others
    )


def difference(options: QueueOptions, asked: dict[str, Any]) -> str:
    """The first requested option that the queue does not match, as a clause; empty if all match."""
    if asked.get("filter") and not options.filter:
        return f"{options.name} has no filter, and its consumers share all its messages"
    for option, value in asked.items():
        holder: Any = options.retry if option.startswith(_RETRY) else options
        has = getattr(holder, option.removeprefix(_RETRY))
        if has != value:
            return f"{options.name} has {option} = {_shown(has)}, and not {_shown(value)}"
    return ""


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)[:80]
