"""What belongs to streams."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest
from mqttlite.telemetry.figures import Figure

MANIFEST: Final = Manifest(
    compiled=(
        "assignor context entry feed group group_expiry once partition reader retention right shared_group stream"
    ),
    commands={
        "stream": Command("List, make, look at or delete streams.", "mqttlite.extensions.streams.commands:command"),
    },
    routes=(
        "mqttlite.extensions.streams.routes:routes",
        "mqttlite.extensions.streams.group_routes:routes",
        "mqttlite.extensions.streams.append_routes:routes",
        "mqttlite.extensions.streams.history_routes:routes",
    ),
    gateway_routes=("mqttlite.extensions.streams.event_routes:routes",),
    pages=("mqttlite.extensions.streams.pages:add",),
    menu=(("/ui/streams", "Streams"),),
    part_of={"/ui/stream": "/ui/streams", "/ui/stream/topic": "/ui/streams"},
    namespaces=("mqttlite.extensions.streams.namespace:STREAMS",),
    served="mqttlite.extensions.streams.stream_commands:SERVED",
    right_of="mqttlite.extensions.streams.namespace:right_of",
    conflicts="mqttlite.extensions.streams.problems:problems",
    figures=(
        Figure("gauge", "stream_messages", "Messages that a stream keeps."),
        Figure("gauge", "stream_bytes", "Their size, as it is counted in memory."),
        Figure("gauge", "stream_readers", "Subscriptions that read a stream."),
        Figure("gauge", "stream_lag", "The most messages that a reader of a stream has not finished."),
        Figure("gauge", "stream_unfinished_seconds", "The age of the oldest message that a reader has not finished."),
        Figure("gauge", "stream_retention_left", "The least part of its time or room that is left to such a message."),
        Figure("gauge", "stream_group_unfinished_seconds", "The age of the oldest message not finished by a group."),
        Figure("gauge", "stream_group_retention_left", "The part of its time or room that is left to that message."),
        Figure("gauge", "stream_group_lag", "Messages that a group of a stream has not finished."),
        Figure("gauge", "stream_group_under_way", "Messages that members of a group have and did not acknowledge."),
        Figure("gauge", "stream_group_scheduled", "Messages of a shared group that wait for their next attempt."),
        Figure("gauge", "stream_group_dead_letters", "Messages that a shared group gave up."),
        Figure("counter", "stream_group_redeliveries", "Attempts of a shared group after the first of a message."),
        Figure("counter", "stream_group_moves", "Partitions of a group that got another reader."),
        Figure("counter", "stream_appended", "Messages that were appended to a stream."),
        Figure("counter", "stream_duplicates", "Messages with a dedup-id that a stream knew."),
        Figure("counter", "stream_refused", "Messages that a stream refused."),
        Figure("counter", "stream_removed", "Messages that a stream removed: too old, no room, or a newer one."),
        Figure("counter", "stream_archived", "Messages of a stream that were written to its archive."),
        Figure("gauge", "stream_archive_waiting", "Messages of a stream that are not in its archive yet."),
        Figure("counter", "stream_archive_missed", "Messages that a stream removed before they were archived."),
    ),
)
