"""The topics that callers made: looked up by id and by name, kept in the data directory, held by the rules.

Invariant: a topic that is here is in the file and its policy is in force, whatever fails.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mqttlite.gateway.mount_point import MountPoint
from mqttlite.gateway.problems import Code, Problem
from mqttlite.security.live_rules import LiveRules
from mqttlite.security.topic_records import MAX_TOPICS, TopicRecord, policies_of, save


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
        self._path: Final = path
        self._live_rules: Final = live_rules
        self._by_id: Final = {topic.topic_id: topic for topic in topics}
        self._by_name: Final = {topic.name: topic for topic in topics}
        self._names: Final = sorted(self._by_name)
        self._changing: Final = asyncio.Lock()

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
        for each in self._names[bisect_left(self._names, name) :]:
            yield self._by_name[each]

    async def add(self, topic: TopicRecord) -> None:
        """Make a topic. Raises `Problem`."""
        async with self._changing:
            if topic.name in self._by_name:
                known = self._by_name[topic.name]
                name = self._mount_point.shown(topic.name)
                raise Problem(Code.CONFLICT, f"the topic {name!r} exists already", topic_id=known.topic_id)
            if len(self) >= MAX_TOPICS:
                raise Problem(Code.QUOTA_EXCEEDED, f"there are {MAX_TOPICS} topics, which is the limit; delete some")
            rules = self._live_rules
            if not topic.is_plain:
                if rules is None:
                    raise Problem(Code.NOT_AVAILABLE, "other rules are in force: a topic here has no permissions")
                if topic.policy().topic_filter() in {each.topic_filter() for each in rules.policies}:
                    raise Problem(Code.CONFLICT, f"the configuration has a topic policy for {topic.name!r}")
            await self._keep([*self._by_id.values(), topic])
            self._by_id[topic.topic_id] = self._by_name[topic.name] = topic
            insort(self._names, topic.name)

    async def replace(self, topic: TopicRecord) -> None:
        """Change a topic. Raises `Problem`."""
        async with self._changing:
            self.find(topic.topic_id)
            if self._live_rules is None and not topic.is_plain:
                raise Problem(Code.NOT_AVAILABLE, "other rules are in force: a topic here has no permissions")
            await self._keep([topic if each.topic_id == topic.topic_id else each for each in self._by_id.values()])
            self._by_id[topic.topic_id] = self._by_name[topic.name] = topic

    async def remove(self, topic_id: str) -> None:
        """Forget a topic: messages of that name go on as if nobody had made it. Raises `Problem`."""
        async with self._changing:
            topic = self.find(topic_id)
            await self._keep([each for each in self._by_id.values() if each is not topic])
            del self._by_id[topic_id], self._by_name[topic.name]
            self._names.pop(bisect_left(self._names, topic.name))

    async def _keep(self, topics: list[TopicRecord]) -> None:
        """Put the topics in force and on disk, or neither."""
        former = list(self._by_id.values())
        is_other = policies_of(topics) != policies_of(former)
        if is_other and self._live_rules is not None and not await self._live_rules.use_topics(policies_of(topics)):
            raise Problem(Code.BUSY, "the ACL file cannot be used now, as the log says; the rules stay as they were")
        if self._path is None:
            return
        try:
            await asyncio.to_thread(save, self._path, topics)
        except OSError as error:
            if is_other and self._live_rules is not None:
                await self._live_rules.use_topics(policies_of(former))
            raise Problem(Code.BUSY, f"{self._path.name} cannot be written: {error.strerror}") from None
