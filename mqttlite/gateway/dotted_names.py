"""Topics in dotted notation, `orders.placed.*`, for callers who come from other message systems. One way: requests may
have it, answers never do.

A dot ends a level, `*` is one level, and `>` or `#` as the last level is all that follow. Invariant: a name is in the
notation of MQTT unless the request says `dotted=true`, because a dot is an ordinary letter in a topic of MQTT.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from mqttlite.gateway.problems import Code, Problem

PARAMETER: Final = "dotted"
"""The field of the query."""

DESCRIPTION: Final = "Whether the name has dots between its levels, and * and > as wildcards"

_WILDCARDS: Final = {"*": "+", ">": "#", "#": "#"}


def is_dotted(query: Mapping[str, Sequence[str]]) -> bool:
    """Whether a query says that its names are dotted. Raises `Problem`."""
    said = query.get(PARAMETER, ["false"])[-1].lower()
    if said not in ("true", "false", "1", "0"):
        raise Problem(Code.INVALID_VALUE, f"{PARAMETER} is {said[:20]!r}: write true or false")
    return said in ("true", "1")


def of_dotted(name: str) -> str:
    """A topic or topic filter in MQTT's notation. Raises `Problem`."""
    levels = name.split(".")
    if "/" in name or "+" in name:
        raise Problem(Code.INVALID_TOPIC, f"{name[:200]!r} has / or +, and a dotted name has none: use . and *")
    if not all(levels):
        raise Problem(Code.INVALID_TOPIC, f"{name[:200]!r} has an empty level, and a dotted name has none")
    return "/".join(_WILDCARDS.get(each, each) for each in levels)
