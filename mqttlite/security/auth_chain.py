"""Authenticates the clients of one listener, and turns the answers into verdicts for the core.

The answers come from an `Authenticator`, which may be a chain, and a `MethodAuthenticator`. Invariant: every question
gets a verdict, and an error never accepts a client.
"""

import logging
from collections.abc import Iterable
from typing import Final

from mqttlite.core.authentication import Verdict
from mqttlite.core.question import Authenticate
from mqttlite.security.authenticator import Authenticator, Credentials, MethodAuthenticator, MethodExchange, TooBusy
from mqttlite.wire.reason_codes import ReasonCode

_log = logging.getLogger("mqttlite.security")


class FirstOf:
    """A chain of `Authenticator`s. The first one that recognises the credentials decides."""

    def __init__(self, authenticators: Iterable[Authenticator]) -> None:
        self._authenticators: Final = tuple(authenticators)

    async def authenticate(self, credentials: Credentials) -> bool | Verdict | None:
        """The first answer that is not None."""
        for each in self._authenticators:
            answer = await each.authenticate(credentials)
            if answer is not None:
                return answer
        return None


class AuthChain:
    """Without authenticators it is open. With `allow_anonymous`, it also accepts clients without user name and password
    that no authenticator recognises."""

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        method_authenticator: MethodAuthenticator | None = None,
        *,
        allow_anonymous: bool = False,
    ) -> None:
        self._authenticator: Final = authenticator
        self._allow_anonymous: Final = allow_anonymous
        self._method_authenticator: Final = method_authenticator
        self._exchanges: Final[dict[int, MethodExchange]] = {}
        self.methods: Final[frozenset[str]] = (
            frozenset() if method_authenticator is None else method_authenticator.methods
        )

    @property
    def is_open(self) -> bool:
        """Whether all clients are accepted without authentication."""
        return self._authenticator is None and self._method_authenticator is None

    async def verdict(self, question: Authenticate, credentials: Credentials) -> Verdict:
        """The answer to a question of the core about a client with these credentials."""
        try:
            if question.method:
                return await self._step(question, credentials)
            if self._authenticator is not None:
                return self._in_full(await self._authenticator.authenticate(credentials), credentials)
        except TooBusy:
            return Verdict(ReasonCode.SERVER_BUSY)
        except Exception:  # any error must refuse the client, and must not leave it waiting
            _log.exception(
                "%s client %r: the authenticator failed",
                *(credentials.peer, credentials.client_id),
                extra=credentials.about(),
            )
            return Verdict(ReasonCode.SERVER_UNAVAILABLE)  # so that clients retry later
        return Verdict(ReasonCode.BAD_USER_NAME_OR_PASSWORD)

    def forget(self, number: int) -> None:
        """A connection is gone: forget its exchange."""
        self._exchanges.pop(number, None)

    def _in_full(self, answer: bool | Verdict | None, credentials: Credentials) -> Verdict:
        """Turn an authenticator's answer into a verdict."""
        if isinstance(answer, Verdict):
            if answer.reason_code == ReasonCode.CONTINUE_AUTHENTICATION:
                raise ValueError("an authenticator answered 0x18, which only an authentication method may")
            return answer
        is_anonymous = credentials.username is None and credentials.password is None
        if answer or (answer is None and is_anonymous and self._allow_anonymous):
            return Verdict(ReasonCode.SUCCESS)
        return Verdict(ReasonCode.BAD_USER_NAME_OR_PASSWORD)

    async def _step(self, question: Authenticate, credentials: Credentials) -> Verdict:
        assert self._method_authenticator is not None, "a method that is not offered"
        exchange = self._exchanges.pop(question.number, None)
        if question.begins or exchange is None:
            exchange = self._method_authenticator.begin(question.method, credentials)
        verdict = await exchange.step(question.data)
        if verdict.reason_code == ReasonCode.CONTINUE_AUTHENTICATION:
            self._exchanges[question.number] = exchange
        return verdict
