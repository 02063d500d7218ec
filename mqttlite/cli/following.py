"""Asks all nodes again and again what became of the messages of a filter, for `why --follow`.

Which nodes there are says the one that is asked; each traces the messages that come by it. Invariant: an outcome is
printed once, and a node that is away or does not answer is named once, until it answers again.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import click

from mqttlite.cli.ask import ask, ask_json
from mqttlite.cli.asker import Place, Unreachable


class Following:
    """`where` is the broker that is asked, and for the others, if it is one of several nodes and names none."""

    def __init__(self, where: Place, topic_filter: str, timeout_s: float) -> None:
        self._where: Final = where
        self._filter: Final = topic_filter
        self._timeout_s: Final = timeout_s
        self._after: Final[dict[str | None, int]] = {}
        """By node: how far its outcomes are known. None: the broker that is asked."""
        self._silent: Final[set[str]] = set()
        self._is_alone: bool = False
        """Whether it was said that the other nodes are not known."""

    def look(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What is new, with the node that says it: empty where one node alone is followed. Raises `Unreachable` if the
        broker that is asked does not answer."""
        found = {None: self._ask(self._where, None), **self._of_others()}
        for part in found.values():
            yield part.get("node", "") if len(found) > 1 else "", part

    def _of_others(self) -> dict[str | None, dict[str, Any]]:
        found: dict[str | None, dict[str, Any]] = {}
        for node, missing in self._others():
            try:
                if missing:
                    raise Unreachable(missing)
                found[node] = self._ask(replace(self._where, node=node), node)
                self._silent.discard(node)
            except Unreachable as error:
                self._after.pop(node, None)
                if node not in self._silent:
                    self._silent.add(node)
                    click.echo(f"Node {node} is not followed: {error}", err=True)
        return found

    def _others(self) -> list[tuple[str, str]]:
        """The other nodes, each with why it cannot be asked; empty if it can."""
        if self._where.node is not None:
            return []
        answer = ask(self._where, "/nodes", self._timeout_s)
        if answer.status == 200:
            self._is_alone = False
            items = json.loads(answer.body)["items"]
            return [(each["name"], "" if each["state"] == "connected" else _reason(each)) for each in items]
        if answer.status != 404 and not self._is_alone:  # 404: a metrics port knows no other node
            self._is_alone = True
            click.echo(f"No other node is followed: {answer.sentence}", err=True)
        return []

    def _ask(self, where: Place, node: str | None) -> dict[str, Any]:
        after = self._after.get(node)
        query = f"/why?follow={quote(self._filter, safe='')}" + ("" if after is None else f"&after={after}")
        found = ask_json(where, query, self._timeout_s)
        self._after[node] = found["latest"]
        return found


def _reason(node: dict[str, Any]) -> str:
    """Why a node is not connected."""
    return node.get("reason") or f"it is {node['state']}"
