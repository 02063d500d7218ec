"""The rules in force, a cache of their verdicts, and the counters of denials.

The role of a client is looked up when it is first needed, and again after the rules or the client's identity change. So
the cost of `authorize` does not depend on the number of clients. Invariant: no verdict outlives the rules that gave it.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.authentication import NO_GRANTS
from mqttlite.core.authorizer import ACTIONS, RECEIVE, Authorizer, OpenRules, allows_unsubscribe, restricts, told_by
from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.limits import DENIALS_TOLD_PER_S, MAX_VERDICTS, VERDICT_TOPIC_BYTES
from mqttlite.core.message import Message
from mqttlite.core.reasons import NOT_AUTHORIZED
from mqttlite.core.route.tally import Tally
from mqttlite.core.source import CLIENT, Source

_EVERYBODY: Final = -1
"""In place of a role, which is 0 or more: all clients."""


@final
class Permissions:
    """One for each broker. `drops` counts messages that no member of a shared subscription may receive."""

    __slots__ = (
        "_effects",
        "_received",
        "_told",
        "_told_since",
        "authorizer",
        "denied",
        "drops",
        "on_denied",
        "restricts",
        "rules",
        "trusts_names",
    )

    def __init__(self, effects: Effects, drops: Drops, authorizer: Authorizer | None = None) -> None:
        self._effects: Final = effects
        self.drops: Final = drops
        self.authorizer: Authorizer = OpenRules() if authorizer is None else authorizer
        self.rules: int = 1
        """The generation of the rules in force, and of the roles that they gave."""
        self.restricts: bool = restricts(self.authorizer)
        """Whether some topics may be hidden from some clients."""
        self.trusts_names: bool = True
        """Whether unverified user names identify users. True only if no listener verifies them."""
        self._received: Final[dict[tuple[int, bytes], bool]] = {}
        """The cached verdicts on who may receive a topic, by role."""
        self.denied: Final[dict[str, int]] = dict.fromkeys(ACTIONS, 0)
        """The number of denied messages or topic filters, by action."""
        self.on_denied: Callable[[str, str | None, str, bytes, str], None] | None = None
        """Called with the client identifier, user name, action, topic and reason, up to `DENIALS_TOLD_PER_S` times a
        second. It must not raise, nor call the core."""
        self._told = 0
        self._told_since = 0.0

    def authorize(self, authorizer: Authorizer) -> None:
        """Put other rules in force. The caller must drop the routes."""
        self.authorizer = authorizer
        self.rules += 1
        self.restricts = restricts(authorizer)
        self._received.clear()

    def ask_roles_again(self) -> None:
        """Ask for the role of everybody when it is needed next: the authorizer has forgotten roles that no session has.
        Routes and verdicts stay, because it gives no number twice."""
        self.rules += 1

    def role_of(self, source: Source) -> int:
        """The role of a client under the rules in force."""
        if source.rules != self.rules:
            source.role = self.authorizer.role_of(source.client_id, source.username, source.grants)
            source.rules = self.rules
        return source.role

    def may_publish(self, source: Source, topic: bytes) -> bool:
        """Whether a session may publish to a topic now."""
        if not self.restricts or source.identity.is_trusted:
            return True
        return self.authorizer.is_open(topic) or self.authorizer.may_publish(self.role_of(source), topic)

    def is_anothers(self, username: str | None, other: str | None) -> bool:
        """Whether a session of user `username` must not be given to a client of user `other`."""
        return self.restricts and username is not None and username != other

    def may_subscribe(self, source: Source, topic_filter: bytes) -> bool:
        """Whether a session may subscribe to a filter. The program's own sessions may subscribe to any."""
        return source.identity.is_trusted or self.authorizer.may_subscribe(self.role_of(source), topic_filter)

    def may_unsubscribe(self, source: Source, topic_filter: bytes) -> bool:
        """Whether a session may end its subscription to a filter."""
        return source.identity.is_trusted or allows_unsubscribe(self.authorizer, self.role_of(source), topic_filter)

    def may_receive(self, source: Source, topic: bytes) -> bool:
        """Whether a session may receive messages of a topic now."""
        return not self.restricts or source.identity.is_trusted or self._may_receive(self.role_of(source), topic)

    def hides(self, topic: bytes) -> bool:
        """Whether some clients may not receive messages of a topic now."""
        return self.restricts and not self._may_receive(_EVERYBODY, topic)

    def _may_receive(self, role: int, topic: bytes) -> bool:
        key = (role, topic)
        verdict = self._received.get(key)
        if verdict is None:
            verdict = self.authorizer.is_readable(topic)
            if not verdict and role != _EVERYBODY:
                verdict = self.authorizer.may_receive(role, topic)
            if len(topic) <= VERDICT_TOPIC_BYTES:
                if len(self._received) >= MAX_VERDICTS:
                    self._received.clear()
                self._received[key] = verdict
        return verdict

    def may_still_write(self, message: Message) -> bool:
        """Whether the writer of a retained message may publish it now; true where the writer is not known."""
        writer, topic = message.writer, message.topic
        if writer is None or not self.restricts or self.authorizer.is_open(topic):
            return True
        if writer.rules != self.rules:
            writer.role = self.authorizer.role_of(writer.client_id, writer.username, NO_GRANTS)
            writer.rules = self.rules
        return self.authorizer.may_publish(writer.role, topic)

    def reason(self, source: Source, action: str, topic: bytes) -> str:
        """Why a client is denied an action, for operators."""
        return self.authorizer.reason(self.role_of(source), action, topic)

    def told(self, source: Source, action: str, topic: bytes) -> str:
        """The same for the client: without paths of the server."""
        return told_by(self.authorizer, self.role_of(source), action, topic)

    def deny(self, source: Source, action: str, topic: bytes, messages: int = 1, reason: str = "") -> None:
        """Count and report a denial. Without `reason`, the rules are asked for it."""
        self.denied[action] += messages
        self.tell_refused(source, action, topic, reason)

    def tell_refused(self, source: Source, action: str, topic: bytes, reason: str) -> None:
        """Report what was refused to a client, for operators. Without `reason`, the rules are asked for it."""
        if self.on_denied is None or source.kind != CLIENT:
            return
        now = self._effects.now
        if now - self._told_since >= 1.0:
            self._told_since = now
            self._told = 0
        if self._told < DENIALS_TOLD_PER_S:
            self._told += 1
            told = reason or self.reason(source, action, topic)
            self.on_denied(source.client_id, source.username, action, topic, told)

    def drop_shared(self, topic: bytes, trace: int, tally: Tally) -> None:
        """Drop a message that no member of a shared subscription may receive."""
        self.denied[RECEIVE] += 1
        tally.drop(NOT_AUTHORIZED)
        self.drops.add(NOT_AUTHORIZED, 1, topic, trace)
