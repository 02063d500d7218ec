"""The publisher of a message: a client with a session or without one, the broker itself, or the program that embeds it.

Invariant: publishers are compared by identity, as No Local requires [MQTT-3.8.3-3].
"""

from math import inf
from typing import Final, final

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.identity import ANONYMOUS, Identity
from mqttlite.core.load.rate_limits import Buckets
from mqttlite.core.retained.writer import Writer
from mqttlite.core.route.topic_limits import NO_TOPIC_LIMITS, TopicLimits

CLIENT: Final = 0
BROKER: Final = 1
PROGRAM: Final = 2


class Source:
    """A publisher. A session is one; the broker and the program are the two below."""

    __slots__ = (
        "_writer",
        "client_id",
        "dates_retained",
        "grants",
        "identity",
        "kind",
        "role",
        "rules",
        "topic_limits",
        "traced",
    )

    def __init__(self, kind: int, client_id: str, identity: Identity = ANONYMOUS) -> None:
        self.kind: Final = kind
        self.client_id: Final = client_id
        """Empty for a publisher that is not a client."""
        self.identity: Identity = identity
        self.grants: Grants = NO_GRANTS
        """The grants of a client's credentials. After a restart of the broker there are none until the client is
        back."""
        self.role: int = 0
        """The `Authorizer`'s number for a client's identity; other publishers may publish everywhere. See
        `Permissions.role_of`."""
        self.rules: int = 0
        """The generation of the rules that gave the role; 0: the role is not known."""
        self.topic_limits: TopicLimits = NO_TOPIC_LIMITS
        """The limits of its topics and payloads."""
        self.traced: bool = False
        """Whether every message from and to this client is traced."""
        self.dates_retained: bool = False
        """Whether the publish times that its retained messages carry count (`PublishOrder`), as they do between
        brokers."""
        self._writer: Writer | None = None

    @property
    def username(self) -> str | None:
        """The user that the client belongs to; None if there is none."""
        return self.identity.username

    def writer(self) -> Writer | None:
        """Who writes its retained messages; None where nobody can be asked about later: it is no client, or its rights
        come with its credentials, which are not kept."""
        grants, username = self.grants, self.identity.username
        if self.kind != CLIENT or self.identity.is_trusted or grants.publish is not None or grants.groups:
            return None
        writer = self._writer
        if writer is None or writer.username != username:
            writer = self._writer = Writer(self.client_id, username)
        return writer


NO_BUCKETS: Final[list[tuple[str, Buckets]]] = []
"""Never added to. The quotas of a publisher without any."""


@final
class Publisher(Source):
    """A client without a session, such as an HTTP caller. It has no link to be closed or held back, so each of its
    messages asks whether it is banned, its credentials have expired, or a quota is used up."""

    __slots__ = ("_buckets", "address", "blocks_until")

    def __init__(
        self,
        client_id: str,
        identity: Identity,
        grants: Grants,
        topic_limits: TopicLimits,
        address: str,
        buckets: list[tuple[str, Buckets]],
    ) -> None:
        super().__init__(CLIENT, client_id, identity)
        self.grants = grants
        self.topic_limits = topic_limits
        self.address: Final = address
        """`address:port`, for bans."""
        self._buckets: Final = buckets
        """Its quotas, each with its scope."""
        self.blocks_until: float = inf
        """When its messages no longer wait for room under the topic policy `block`."""

    def charge(self, messages: int, size: int, now: float) -> str:
        """Count messages against its quotas. Return the scope of a quota with a debt, and then count nothing; empty if
        there is none."""
        for scope, buckets in self._buckets:
            if not buckets.have(0, 0, now):
                return scope
        for _, buckets in self._buckets:
            buckets.take(messages, size, now)
        return ""

    def for_request(self, blocks_until: float) -> "Publisher":
        """The same publisher, for the messages of one request: they were charged together, and wait for room no longer
        than one message."""
        found = Publisher(self.client_id, self.identity, self.grants, self.topic_limits, self.address, NO_BUCKETS)
        found.blocks_until = blocks_until
        return found


THE_BROKER: Final = Source(BROKER, "")
"""Publishes `$SYS` topics."""

THE_PROGRAM: Final = Source(PROGRAM, "")
"""Publishes messages that a program gives to `Broker.publish`."""
