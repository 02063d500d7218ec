"""Answers the core's authentication questions: a task for each asks the listener's `AuthChain`.

The jail does not apply to a re-authentication, because that client has logged in before. Invariant: a connection has at
most one open question, and the end of the connection cancels it.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from mqttlite.core.authentication import Verdict
from mqttlite.core.question import Authenticate
from mqttlite.event_hub import Link, Listener
from mqttlite.security.auth_chain import AuthChain
from mqttlite.security.authenticator import Credentials
from mqttlite.security.jail import LoginJail
from mqttlite.wire.reason_codes import ReasonCode


class ClientHooks(Protocol):
    """What is asked about clients whose login succeeded."""

    async def verdict(self, link: Link, username: str | None) -> Verdict:
        """A refusal, or 0. Must not raise."""
        ...


class AuthQuestions(Listener):
    """`answer` takes the id of a question and its verdict. For clients in `jail` no authenticator is asked."""

    def __init__(self, answer: Callable[[int, Verdict], None], jail: LoginJail) -> None:
        self._answer: Final = answer
        self._jail: Final = jail
        self.hooks: Callable[[], ClientHooks | None] = lambda: None
        """What is asked about clients whose login succeeded, if there is something."""
        self._tasks: Final[dict[int, asyncio.Task[None]]] = {}
        self._chains: Final[dict[int, AuthChain]] = {}
        """By connection, because an authentication may have several steps."""

    def __len__(self) -> int:
        """Open questions."""
        return len(self._tasks)

    def ask(self, link: Link, question: Authenticate, chain: AuthChain) -> None:
        """Find the answer to a question and give it to the core."""
        self._chains[question.number] = chain
        task = asyncio.get_running_loop().create_task(self._find_answer(link, question, chain))
        self._tasks[question.number] = task
        task.add_done_callback(partial(self._on_done, question.number))

    async def login(self, credentials: Credentials, *, chain: AuthChain) -> Verdict:
        """The verdict for a caller that is not a client of the core, for example over HTTP."""
        verdict = self._jail.refusal(credentials)
        if verdict is not None:
            await self._jail.delay()
            return verdict
        question = Authenticate(0, credentials.client_id, credentials.username, credentials.password)
        return self._jail.judge(credentials, await chain.verdict(question, credentials))

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel all open questions, and return their tasks, which may take a while to end."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks

    def on_refused(self, link: Link) -> None:
        self._forget(link.connection.number)

    def on_closed(self, link: Link) -> None:
        self._forget(link.connection.number)

    def _forget(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is not None:
            task.cancel()
        chain = self._chains.pop(number, None)
        if chain is not None:
            chain.forget(number)

    def _on_done(self, number: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(number) is task:
            del self._tasks[number]

    async def _find_answer(self, link: Link, question: Authenticate, chain: AuthChain) -> None:
        credentials = Credentials(
            question.client_id,
            question.username,
            question.password,
            link.connection.peer.identity.username,
            link.address,
            link.listener,
        )
        is_new = not link.connection.accepted
        needs_login = not chain.is_open or question.method != ""
        verdict = self._jail.refusal(credentials) if is_new and needs_login else None
        if verdict is not None:
            await self._jail.delay()
        elif not needs_login:
            verdict = Verdict(ReasonCode.SUCCESS)
        else:
            verdict = await chain.verdict(question, credentials)
            if is_new:
                verdict = self._jail.judge(credentials, verdict)
        hooks = self.hooks()
        if is_new and verdict.reason_code == 0 and hooks is not None:
            peer = link.connection.peer
            verified = peer.identity.username if question.method else None  # as the core names the client
            refusal = await hooks.verdict(link, verified or verdict.username or link.connection.username)
            verdict = refusal if refusal.reason_code else verdict
        self._answer(question.id, verdict)
