"""Topic policies (`[[topic_policies]]`): their options, and which policy applies to a topic.

`rules` decides whether a client may read or write. Invariant: at most one policy applies to a topic, whatever the
client.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal, final

import msgspec
import pygtrie

from mqttlite.core.payload_check import PayloadCheck
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.extensions.built_in import refusal
from mqttlite.security.rule_tree import READ, Rule, RuleTree, first
from mqttlite.topics.names import check_filter, has_wildcard, matches, shown
from mqttlite.wire.errors import TopicFilterInvalid

Access = Literal["PUBLIC", "PRIVATE", "PUBLISH_ONLY", "SUBSCRIBE_ONLY"]
"""The access of clients that are neither owner nor member."""

TopicClass = Literal["ephemeral", "standard"]
"""How messages of a topic are stored."""

MAX_POLICIES: Final = 10_000
"""A policy is for a group of topics. Rules for many single topics belong in an ACL file."""

MAX_PRESENCE: Final = 1_000
"""The most policies with presence: each is compared with every new wildcard filter."""

MAX_SECONDS: Final = 0xFFFF_FFFF
"""The longest Message Expiry Interval (5.0 §3.3.2.3.3)."""


class TopicPolicyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[topic_policies]]`: the policy for the topics of a prefix or a filter."""

    prefix: str = ""
    """The topic that the policy applies to, with all topics below it."""
    filter: str = ""
    """A topic filter, instead of `prefix`."""
    access: Access = "PUBLIC"
    """The access of clients that are neither owner nor member."""
    owner: str = ""
    """A user who may publish and subscribe."""
    members: tuple[str, ...] = ()
    """Users who may publish and subscribe."""
    groups: tuple[str, ...] = ()
    """Groups whose users may publish and subscribe."""
    topic_class: TopicClass = msgspec.field(default="standard", name="class")
    """How the messages are stored."""
    min_qos: int = 0
    """A message with a lower QoS is refused."""
    max_qos: int = 2
    """Subscribers get messages at this QoS at most."""
    max_payload_bytes: int = 0
    """The largest payload. 0: no limit but `limits.max_packet_bytes`."""
    ttl_s: int = 0
    """The longest expiry interval of messages. 0: no limit."""
    presence: bool = False
    """Whether the broker publishes the presence of subscribers."""
    tell_publisher: bool = False
    """Whether messages name the publisher's client identifier, if they carry their identity (`tell_message`)."""
    on_overflow: Literal["", "drop_newest", "drop_oldest", "disconnect", "block", "reject"] = ""
    """The policy for a receiver without room. Empty: `limits.on_overflow`."""
    priority: Literal["low", "normal"] = "normal"
    """Whether overload drops its messages first (`low`)."""
    description: str = ""
    """A description for people."""
    schema: str = ""
    """The schema for payloads: a subject of the registry, or `subject:version`. Empty: none."""
    schema_violation: Literal["reject", "dead_letter", "count"] = "reject"
    """The action for a message whose payload violates the schema."""

    def __post_init__(self) -> None:
        for option, owner in (("presence", "presence"), ("schema", "schemas")):
            if getattr(self, option) and (refused := refusal(owner)):
                raise ValueError(f"{option}{refused}")
        if bool(self.prefix) == bool(self.filter):
            raise ValueError("prefix and filter: one of them names the topics")
        if self.prefix.endswith("/"):
            raise ValueError(f"prefix is {self.prefix!r}: write {self.prefix.rstrip('/')!r}, levels below it follow")
        if "#" in self.prefix or "+" in self.prefix:
            raise ValueError(f"prefix is {self.prefix!r}: it has a wildcard; write filter = {self.prefix!r}")
        try:
            check_filter(self.topic_filter())
        except TopicFilterInvalid as error:
            raise ValueError(f"{'prefix' if self.prefix else 'filter'} is wrong: {error}") from None
        for name, low, high in (
            ("min_qos", 0, 2),
            ("max_qos", 0, 2),
            ("max_payload_bytes", 0, 268_435_455),
            ("ttl_s", 0, MAX_SECONDS),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}: it may be {low} to {high}")
        if self.min_qos > self.max_qos:
            raise ValueError(f"min_qos is {self.min_qos}, above max_qos, which is {self.max_qos}")
        if self.schema_violation != "reject" and not self.schema:
            raise ValueError(f"schema_violation is {self.schema_violation!r} without a schema")

    def topic_filter(self) -> bytes:
        """The topics, as a filter."""
        return (f"{self.prefix}/#" if self.prefix else self.filter).encode()


def policy_problems(policies: Sequence[TopicPolicyOptions]) -> Iterator[tuple[int, str]]:
    """What is wrong with policies that are right one by one: the number of each, and a sentence."""
    if len(policies) > MAX_POLICIES:
        yield MAX_POLICIES, f"there are {len(policies)}: {MAX_POLICIES} at most"
    with_presence = [number for number, each in enumerate(policies) if each.presence]
    if len(with_presence) > MAX_PRESENCE:
        yield (
            with_presence[MAX_PRESENCE],
            f"presence is asked for by {len(with_presence)} policies: {MAX_PRESENCE} at most",
        )
    seen: dict[bytes, int] = {}
    for number, each in enumerate(policies):
        first = seen.setdefault(each.topic_filter(), number)
        if first != number:
            yield number, f"topic_policies[{first}] is for {shown(each.topic_filter())}, too: put them together"


CheckOf = Callable[[str, Literal["reject", "dead_letter", "count"]], PayloadCheck]
"""The check of a schema, and what becomes of messages that are something else."""


@final
class Policy:
    """One policy in the form in which it is asked. `number` is its place in the file, from 0. Without `check_of` no
    payload is looked at."""

    __slots__ = ("core", "levels", "number", "options", "publish_is_open", "receive_is_open", "topic_filter")

    def __init__(self, number: int, options: TopicPolicyOptions, check_of: CheckOf | None = None) -> None:
        self.number: Final = number
        self.options: Final = options
        self.topic_filter: Final = options.topic_filter()
        self.levels: Final = self.topic_filter.split(b"/")
        self.publish_is_open: Final = options.access in ("PUBLIC", "PUBLISH_ONLY")
        self.receive_is_open: Final = options.access in ("PUBLIC", "SUBSCRIBE_ONLY")
        schema: PayloadCheck | None = None
        if check_of is not None and options.schema:
            schema = check_of(options.schema, options.schema_violation)
        self.core: Final = TopicPolicy(
            name=options.prefix or options.filter,
            topic_class=options.topic_class,
            max_payload_bytes=options.max_payload_bytes,
            min_qos=options.min_qos,
            max_qos=options.max_qos,
            ttl_s=options.ttl_s,
            payload_check=schema,
            priority=options.priority,
            on_overflow=options.on_overflow,
            tells_publisher=options.tell_publisher,
        )

    @property
    def title(self) -> str:
        """How a sentence names it."""
        options = self.options
        return f'the topic policy for "{options.prefix or options.filter}" ({options.access})'


@final
class TopicPolicies:
    """All policies. The one that holds has the longest beginning without wildcards; of several with the same beginning
    it is the one with the most literal levels, then with the most levels, then the first in the file."""

    def __init__(self, options: Sequence[TopicPolicyOptions] = (), check_of: CheckOf | None = None) -> None:
        self.policies: Final = tuple(Policy(number, each, check_of) for number, each in enumerate(options))
        self.depth: Final = max((len(each.levels) for each in self.policies), default=0)
        """The most levels of a filter."""
        self._by_rank: Final = sorted(self.policies, key=_rank)
        self._prefixes: Final = pygtrie.Trie()
        """The places by rank, from 1 on, of policies for a topic and for all below one, by its levels."""
        self.filters: Final = RuleTree()
        """The others. The line of a rule is the place of its policy."""
        for place, policy in enumerate(self._by_rank, 1):
            beginning = _literal_beginning(policy.levels)
            if policy.levels[len(beginning) :] in ([], [b"#"]):
                self._prefixes.setdefault(beginning, []).append(place)
            else:
                self.filters.add(Rule(place, READ, policy.topic_filter))
        self._with_presence: Final = [each for each in self.policies if each.options.presence]
        self._numbers_of_users: Final[dict[str, set[int]]] = {}
        self._numbers_of_groups: Final[dict[str, set[int]]] = {}
        for policy in self.policies:
            for user in filter(None, (policy.options.owner, *policy.options.members)):
                self._numbers_of_users.setdefault(user, set()).add(policy.number)
            for group in policy.options.groups:
                self._numbers_of_groups.setdefault(group, set()).add(policy.number)

    def __len__(self) -> int:
        return len(self.policies)

    def find(self, topic: bytes) -> Policy | None:
        """The policy that holds for a topic."""
        if not self.policies:
            return None
        levels = topic.split(b"/")
        place = self.filters.find(levels).read
        for step in self._prefixes.prefixes(levels):
            for each in step.value:
                if matches(self._by_rank[each - 1].topic_filter, topic):
                    place = first(place, each)
        return self._by_rank[place - 1] if place else None

    def of_core(self, topic: bytes) -> TopicPolicy:
        """What the core does with the messages of a topic."""
        policy = self.find(topic)
        return NO_POLICY if policy is None else policy.core

    @property
    def ask_for_presence(self) -> bool:
        """Whether any policy does."""
        return bool(self._with_presence)

    def has_presence(self, topic: bytes) -> bool:
        """Whether the broker says who subscribes to a topic."""
        policy = self.find(topic)
        return policy is not None and policy.options.presence

    def may_have_presence(self, topic_filter: bytes) -> bool:
        """Whether it may do so for a topic that a filter matches."""
        levels = topic_filter.split(b"/")
        return any(intersection(levels, policy.levels) is not None for policy in self._with_presence)

    def presence_topics(self) -> list[bytes]:
        """The topics that policies with presence name: those of a prefix, and of a filter without wildcards."""
        named = [(each.options.prefix or each.options.filter).encode() for each in self._with_presence]
        return [topic for topic in named if not has_wildcard(topic) and self.has_presence(topic)]

    def memberships(self, username: str | None, groups: Iterable[str]) -> frozenset[int]:
        """The numbers of the policies whose owner or member a user is."""
        found: set[int] = set()
        if username is not None:
            found |= self._numbers_of_users.get(username, set())
        for group in groups:
            found |= self._numbers_of_groups.get(group, set())
        return frozenset(found)


def _literal_beginning(levels: Sequence[bytes]) -> list[bytes]:
    beginning: list[bytes] = []
    for level in levels:
        if level in (b"+", b"#"):
            break
        beginning.append(level)
    return beginning


def _rank(policy: Policy) -> tuple[int, int, int, int]:
    """The lower, the more specific. Of two policies for one topic, the beginning of one is that of the other or begins
    with it."""
    literals = sum(level not in (b"+", b"#") for level in policy.levels)
    levels = 2 * len(policy.levels) - policy.levels.count(b"#")  # "a/+" is more specific than "a/#"
    return -len(_literal_beginning(policy.levels)), -literals, -levels, policy.number


def intersection(one: Sequence[bytes], other: Sequence[bytes]) -> list[bytes] | None:
    """The filter of the topics that two filters have in common, in levels; None where there are none."""
    if one[0].startswith(b"$") and other[0] in (b"+", b"#"):
        return None
    if other[0].startswith(b"$") and one[0] in (b"+", b"#"):
        return None
    found: list[bytes] = []
    for at in range(max(len(one), len(other)) + 1):
        mine = one[at] if at < len(one) else None
        theirs = other[at] if at < len(other) else None
        if mine == b"#":
            return found + list(other[at:]) if theirs is not None else found
        if theirs == b"#":
            return found + list(one[at:]) if mine is not None else found
        if mine is None or theirs is None:
            return found if mine is theirs else None
        if mine != theirs and b"+" not in (mine, theirs):
            return None
        found.append(theirs if mine == b"+" else mine)
    return found
