"""The topics that callers made: looked up by id and by name, kept in the data directory, held by the rules.

Invariant: a topic that is here is in the file and its policy is in force, whatever fails.
"""

import asyncio
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from errno import EINVAL
from pathlib import Path
from typing import Final

from mqttlite.files.shared_document import SharedDocument
from mqttlite.gateway.agreeing import agree
from mqttlite.gateway.mount_point import MountPoint
from mqttlite.gateway.problems import Code, Problem
from mqttlite.security.live_rules import LiveRules
from mqttlite.security.topic_file import TopicFile, content_of, line_of, line_without, parse
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.security.topic_records import (
    MAX_OWNED_BYTES,
    MAX_OWNED_TOPICS,
    MAX_TOPIC_BYTES,
    MAX_TOPICS,
    MAX_TOPICS_BYTES,
    TopicRecord,
)


class Topics:
    """`path` is the file; None: they live as long as the broker. `live_rules` is None where other rules are in force,
    and then topics have no policy. No caller sees a topic that is not below its mount point."""

    def __init__(
        self,
        topics: Sequence[TopicRecord],
        path: Path | None,
        live_rules: LiveRules | None,
        mount_point: MountPoint,
    ) -> None:
        self._mount_point: Final = mount_point
        self._file: Final = None if path is None else TopicFile(path)
        self._live_rules: Final = live_rules
        self._by_id: dict[str, TopicRecord] = {}
        self._bytes_of: dict[str, int] = {}
        self._policies: dict[str, TopicPolicyOptions] = {}
        self._owned: Counter[str | None] = Counter()
        self._owned_bytes: Counter[str | None] = Counter()
        self._by_name: dict[str, TopicRecord] = {}
        self._names: list[str] = []
        self._fill(topics)
        self.document: Final = SharedDocument(
            *("topics", parse, self._replace), path=path, lock=asyncio.Lock(), read=self._read
        )
        self._changing: Final = self.document.lock

    def _fill(self, topics: Sequence[TopicRecord]) -> None:
        """Have these topics and no others."""
        self._by_id = {topic.topic_id: topic for topic in topics}
        self._bytes_of = {topic.topic_id: len(line_of(topic)) for topic in topics}
        self._policies = _policies_of(topics)
        self._owned = Counter(topic.owner for topic in topics)
        self._owned_bytes = Counter()
        for topic in topics:
            self._owned_bytes[topic.owner] += self._bytes_of[topic.topic_id]
        self._by_name = {topic.name: topic for topic in topics}
        self._names = sorted(self._by_name)

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, topic_id: str) -> TopicRecord | None:
        """The topic of that id; None where there is none for callers."""
        topic = self._by_id.get(topic_id)
        return topic if topic is not None and self._mount_point.shown(topic.name) else None

    def find(self, topic_id: str) -> TopicRecord:
        """As `get`. Raises `Problem`."""
        topic = self.get(topic_id)
        if topic is None:
            raise Problem(Code.NOT_FOUND, f"there is no topic {topic_id[:80]!r}")
        return topic

    def named(self, name: str) -> TopicRecord | None:
        return self._by_name.get(name)

    def from_name(self, name: str) -> Iterator[TopicRecord]:
        """Those from that name on, in the order of their names. Look at them before you wait for anything."""
        for at in range(bisect_left(self._names, name), len(self._names)):
            yield self._by_name[self._names[at]]

    async def add(self, topic: TopicRecord, *, is_limited: bool = True) -> None:
        """Make a topic. `is_limited`: its owner may have a number of topics, as all but admins. Raises `Problem`."""
        async with self._changing:
            if topic.name in self._by_name:
                known = self._by_name[topic.name]
                name = self._mount_point.shown(topic.name)
                raise Problem(Code.CONFLICT, f"the topic {name!r} exists already", topic_id=known.topic_id)
            if len(self) >= MAX_TOPICS:
                raise Problem(Code.QUOTA_EXCEEDED, f"there are {MAX_TOPICS} topics, which is the limit; delete some")
            if is_limited and self._owned[topic.owner] >= MAX_OWNED_TOPICS:
                raise Problem(
                    Code.QUOTA_EXCEEDED,
                    f"{_whose(topic)} {MAX_OWNED_TOPICS} topics, which is the limit; delete some, or ask an admin",
                )
            rules = self._live_rules
            if not topic.is_plain:
                if rules is None:
                    raise Problem(Code.NOT_AVAILABLE, "other rules are in force: a topic here has no permissions")
                if topic.policy().topic_filter() in {each.topic_filter() for each in rules.policies}:
                    raise Problem(Code.CONFLICT, f"the configuration has a topic policy for {topic.name!r}")
            await self._put(topic, is_limited)
            insort(self._names, topic.name)

    async def change(
        self, topic_id: str, change: Callable[[TopicRecord], TopicRecord], *, is_limited: bool = True
    ) -> TopicRecord:
        """Change a topic to what `change` makes of it, when no other change is under way; what it is then. Raises
        `Problem`."""
        async with self._changing:
            topic = change(self.find(topic_id))
            if self._live_rules is None and not topic.is_plain:
                raise Problem(Code.NOT_AVAILABLE, "other rules are in force: a topic here has no permissions")
            await self._put(topic, is_limited)
            return topic

    async def remove(self, topic_id: str) -> None:
        """Forget a topic: its messages go on as if it had not been made. Raises `Problem`."""
        async with self._changing:
            topic = self.find(topic_id)
            await self._keep(topic_id, None, line_without(topic_id))
            del self._by_id[topic_id], self._by_name[topic.name]
            self._names.pop(bisect_left(self._names, topic.name))
            self._uncount(topic)

    async def _put(self, topic: TopicRecord, is_limited: bool) -> None:
        """Keep a topic, which is new or takes the place of another of its id. Raises `Problem`."""
        former = self._by_id.get(topic.topic_id)
        line = line_of(topic)
        self._check_room(topic, len(line), 0 if former is None else self._bytes_of[topic.topic_id], is_limited)
        policy = None if topic.is_plain else topic.policy()
        await self._keep(topic.topic_id, policy, line, topic)
        if former is not None:
            self._uncount(former)
        self._by_id[topic.topic_id] = self._by_name[topic.name] = topic
        self._bytes_of[topic.topic_id] = len(line)
        self._owned[topic.owner] += 1
        self._owned_bytes[topic.owner] += len(line)

    def _check_room(self, topic: TopicRecord, size: int, former: int, is_limited: bool) -> None:
        """Raises `Problem` for a topic that takes too much, or for which there is no room."""
        if size > MAX_TOPIC_BYTES:
            raise Problem(Code.INVALID_VALUE, f"the topic takes {size} bytes as JSON: {MAX_TOPIC_BYTES} at most")
        if size <= former:
            return
        if is_limited and self._owned_bytes[topic.owner] - former + size > MAX_OWNED_BYTES:
            raise Problem(
                Code.QUOTA_EXCEEDED,
                f"{_whose(topic)} topics of {MAX_OWNED_BYTES} bytes as JSON, which is the limit; delete some",
            )
        if self._owned_bytes.total() - former + size > MAX_TOPICS_BYTES:
            raise Problem(
                Code.QUOTA_EXCEEDED, f"all topics take {MAX_TOPICS_BYTES} bytes, which is the limit; delete some"
            )

    def _uncount(self, topic: TopicRecord) -> None:
        self._owned[topic.owner] -= 1
        self._owned_bytes[topic.owner] -= self._bytes_of.pop(topic.topic_id)

    async def _keep(
        self, topic_id: str, policy: TopicPolicyOptions | None, line: bytes, topic: TopicRecord | None = None
    ) -> None:
        """Put a topic's policy in force and its line on disk, or neither; without `topic` it is removed."""
        if self.document.agreeing is not None:
            await agree(self.document, await asyncio.to_thread(_content_of, list(self._after(topic_id, topic))))
        former = self._policies.get(topic_id)
        if not await self._enforce(topic_id, policy):
            raise Problem(Code.BUSY, "the ACL file cannot be used now, as the log says; the rules stay as they were")
        if self._file is None:
            return
        try:
            await asyncio.to_thread(self._file.write, line, self._after(topic_id, topic))
        except OSError as error:
            await self._enforce(topic_id, former)
            raise Problem(Code.BUSY, f"{self._file.path.name} cannot be written: {error.strerror}") from None

    def _after(self, topic_id: str, topic: TopicRecord | None) -> Iterable[TopicRecord]:
        """All topics after a change of one of them. Other changes wait meanwhile."""
        yield from (each for name, each in self._by_id.items() if name != topic_id)
        if topic is not None:
            yield topic

    def _read(self) -> bytes | None:
        """What all nodes have: None before the first topic."""
        topics, file = list(self._by_id.values()), self._file
        return _content_of(topics) if topics or (file is not None and file.path.exists()) else None

    async def _replace(self, content: bytes) -> None:
        """Use what another node has made of the topics. Raises `OSError`."""
        topics = await asyncio.to_thread(parse, content)
        if self._file is not None:  # first: what is only in memory would be taken for written
            await asyncio.to_thread(self._file.replace, topics)
        rules, policies = self._live_rules, _policies_of(topics)
        if rules is not None and policies != self._policies and not await rules.use_topics(list(policies.values())):
            raise OSError(EINVAL, "the rules cannot be used now", rules.acl_file)
        self._fill(topics)

    async def _enforce(self, topic_id: str, policy: TopicPolicyOptions | None) -> bool:
        """Have the rules hold this policy of a topic, or none; whether they do."""
        former = self._policies.get(topic_id)
        if policy == former:
            return True
        self._set_policy(topic_id, policy)
        if self._live_rules is None or await self._live_rules.use_topics(list(self._policies.values())):
            return True
        self._set_policy(topic_id, former)
        return False

    def _set_policy(self, topic_id: str, policy: TopicPolicyOptions | None) -> None:
        if policy is None:
            self._policies.pop(topic_id, None)
        else:
            self._policies[topic_id] = policy


def _policies_of(topics: Iterable[TopicRecord]) -> dict[str, TopicPolicyOptions]:
    return {each.topic_id: each.policy() for each in topics if not each.is_plain}


def _content_of(topics: Iterable[TopicRecord]) -> bytes:
    """The same bytes for the same topics, in whatever order they were made."""
    return content_of(sorted(topics, key=lambda each: each.topic_id))


def _whose(topic: TopicRecord) -> str:
    return "callers without a user name have" if topic.owner is None else f"the user {topic.owner!r} has"
