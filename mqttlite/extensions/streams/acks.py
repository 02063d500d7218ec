"""What publishers have finished as members of groups, and say together with a message: the user property `acks`.

Invariant: all acks of a message are finished or none, and in the commit of the message.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from mqttlite.core.route.permissions import Permissions
from mqttlite.core.session.session import Session
from mqttlite.core.source import Source
from mqttlite.extensions.streams.group import Group
from mqttlite.extensions.streams.limits import MAX_ACKS, MAX_ACKS_CHARACTERS
from mqttlite.extensions.streams.namespace import split_position
from mqttlite.extensions.streams.once import Finished, parse_finished
from mqttlite.extensions.streams.reader import Reader
from mqttlite.extensions.streams.shared_group import SharedGroup, SharedMember
from mqttlite.extensions.streams.states import KeptStream

_OF_GROUP: Final = re.compile(r"\$share/(?P<group>[^/]+)/\$stream/(?P<stream>[^/@]+)(@[^/]+)?")


class Acks:
    """`streams` are all, by name. `save` records where a group is, and `move` makes one without a member go on from
    offsets by partition."""

    def __init__(
        self,
        permissions: Permissions,
        streams: Mapping[str, KeptStream],
        save: Callable[[Group], None],
        move: Callable[[Group, dict[int, int]], None],
    ) -> None:
        self._permissions: Final = permissions
        self._streams: Final = streams
        self._save: Final = save
        self._move: Final = move

    def take(self, source: Source, acks: list[str]) -> str:
        """Finish messages for a member of groups. Each of `acks` is the topic filter of a subscription, a space, and
        what is finished (`0:17,1:20-22`). Return why not; then none is finished."""
        if len(acks) > MAX_ACKS:
            return f"acks: {len(acks)} of them, and {MAX_ACKS} may come with a message"
        characters = sum([len(each) for each in acks])
        if characters > MAX_ACKS_CHARACTERS:
            return f"acks: {characters} characters, and {MAX_ACKS_CHARACTERS} may come with a message"
        found: list[tuple[Group, Reader | None, dict[int, int]]] = []
        named: set[tuple[Group, int]] = set()
        for each in acks:
            topic_filter, _, text = each.rpartition(" ")
            reader = self._reader_of(source, topic_filter)
            group = self._group_without_reader(source, topic_filter) if reader is None else reader.group
            if isinstance(group, SharedGroup):
                return f"acks: the group of {topic_filter[:128]!r} is shared, and its members finish single messages"
            if group is None:
                return f"acks: {topic_filter[:128]!r} is no subscription of this client in a group"
            member = reader if isinstance(reader, Reader) else None
            try:
                asked = parse_finished(text)
            except ValueError as error:
                return f"acks: {error}"
            for finished in asked:
                if (group, finished.partition) in named:
                    shown = f"the partition {finished.partition} of $stream/{group.stream}"
                    return f"acks: {shown} is named twice for the group {group.name[:128]!r}"
                named.add((group, finished.partition))
                refusal = self._refusal(group, member, finished)
                if refusal:
                    return f"acks: {finished.text} {refusal}"
            found.append((group, member, {finished.partition: finished.last for finished in asked}))
        for group, reader, offsets in found:
            if reader is None:
                self._move(group, {partition: offset + 1 for partition, offset in offsets.items()})
                continue
            for partition, offset in offsets.items():
                reader.finish_to(partition, offset)
            self._save(group)
        return ""

    def _refusal(self, group: Group, member: Reader | None, finished: Finished) -> str:
        """Why a member, or a publisher that is none, has not finished something; empty if it has."""
        number, last = finished.partition, finished.last
        if member is None and self._is_refused(group, number, last):
            return "is finished, of a member, or is not there yet"
        if member is not None and member.refuses(number, last):
            return "is finished, of another member now, or was not sent to this one"
        position = group.cursor.places[number].position
        begins = (None, position, max(position, self._streams[group.stream].stream.partitions[number].first))
        return "" if finished.first in begins else f"does not begin at the position of the group, which is {position}"

    def _group_without_reader(self, source: Source, topic_filter: str) -> Group | SharedGroup | None:
        """The group for a publisher that has no session, such as an HTTP caller, and so no subscription: it finishes
        messages in partitions that no member reads."""
        if isinstance(source, Session):
            return None
        found = _OF_GROUP.fullmatch(topic_filter)
        kept = None if found is None else self._streams.get(found["stream"])
        if kept is None or not kept.options.is_below(source.identity.mount_point):
            return None
        if not self._permissions.may_subscribe(source, kept.stream.topic):
            return None
        return kept.groups.get(found["group"]) if found is not None else None

    def _is_refused(self, group: Group, partition: int, offset: int) -> bool:
        """Whether a publisher without a session cannot finish a message."""
        kept = self._streams[group.stream]
        if partition >= len(group.owners) or group.owners[partition] is not None:
            return True
        log = kept.stream.partitions[partition]
        return not max(group.cursor.places[partition].position, log.first) <= offset < log.end

    def _reader_of(self, source: Source, topic_filter: str) -> Reader | SharedMember | None:
        """The reader of a subscription of the client that publishes."""
        levels = topic_filter.split("/", 4)
        if len(levels) < 4:
            return None
        kept = self._streams.get(split_position(levels[3].encode())[0].decode())
        found = None if kept is None else kept.readers.get((source.client_id, topic_filter.encode()))
        return found if found is not None and found.session is source else None
