"""A tree's worth of topic filters, and topics to ask it for."""

import random
from collections.abc import Callable
from typing import Final

from mqttlite.core.route.subscription import Subscription
from mqttlite.topics.tree import SubscriptionTree

BATCH: Final = 1_000
"""Topics in one round, all over the tree, so that one lucky cache line does not answer for all."""

Tree = SubscriptionTree[Subscription]


def mixed(number: int) -> bytes:
    """Of ten filters six are plain, two end in `#`, one has a `+` inside and one begins with it."""
    site, device = divmod(number, 1000)
    kind = number % 10
    if kind < 6:
        return b"site/%d/device/%d/temp" % (site, device)
    if kind < 8:
        return b"site/%d/device/%d/#" % (site, device)
    if kind == 8:
        return b"site/%d/+/%d/temp" % (site, device)
    return b"+/%d/device/%d/temp" % (site, device)


def topics(size: int, kinds: tuple[int, ...], topic: bytes) -> list[bytes]:
    """Topics that filters of those kinds match, chosen evenly and in no order."""
    chosen = random.Random(size)
    numbers = [chosen.randrange(size // 10) * 10 + kinds[effects % len(kinds)] for effects in range(BATCH)]
    return [topic % divmod(number, 1000) for number in numbers]


PLAIN: Final = b"site/%d/device/%d/temp"
ASKED: Final[dict[str, tuple[tuple[int, ...], bytes, int]]] = {
    "exact": ((0, 1, 2, 3, 4, 5), PLAIN, 1),
    "hash": ((6, 7), PLAIN, 1),
    "plus": ((8,), PLAIN, 1),
    "plus-first": ((9,), PLAIN, 1),
    "miss": (tuple(range(10)), b"site/%d/device/%d", 0),
    "miss-early": (tuple(range(10)), b"elsewhere/%d-%d", 0),
    "hot": ((0, 6, 8, 9), PLAIN, 1),
}
"""Kinds of filters asked for, the topic asked with, and what it finds; `miss` walks to the last level for nothing."""


def asking(tree: Tree, names: list[bytes]) -> Callable[[], int]:
    """Match all the names; how many subscriptions were found."""
    match = tree.match

    def ask() -> int:
        found = 0
        for name in names:
            found += len(match(name))
        return found

    return ask
