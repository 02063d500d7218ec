"""Answers requests of other nodes by the HTTP application of this one, which is made for the first of them.

Invariant: the libraries of the application are imported in a thread, so that no client waits for them.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec

from mqttlite.extensions.nodes.calls import REFUSED

if TYPE_CHECKING:
    from mqttlite.gateway.bodies import App

MODULE: Final = "mqttlite.gateway.operator_servers"
"""It builds the application."""


class Answering:
    """`build` makes the application, once `MODULE` is imported."""

    def __init__(self, build: "Callable[[], App]") -> None:
        self._build: Final = build
        self._app: App | None = None

    async def answer(self, node: str, request: bytes) -> bytes:
        """The answer to a request of a node."""
        if self._app is None:
            await asyncio.to_thread(import_module, MODULE)
        from mqttlite.gateway.asking import answer_in  # what they need is imported with that module
        from mqttlite.gateway.elsewhere import Question

        if self._app is None:
            self._app = self._build()
        try:
            question = msgspec.msgpack.decode(request, type=Question)
        except msgspec.DecodeError:
            return REFUSED
        caller = msgspec.structs.replace(question.caller, how=f"{question.caller.how} at node {node}")
        answered = await answer_in(self._app, msgspec.structs.replace(question, caller=caller))
        return msgspec.msgpack.encode(answered)
