"""What belongs to queues."""

from typing import Final

from mqttlite.extensions.manifest import Command, Manifest
from mqttlite.telemetry.figures import Figure

_FOLDER: Final = "mqttlite.extensions.queues"

MANIFEST: Final = Manifest(
    compiled=(
        "backlog_pages consumers contents context deferred deferred_pages expiry forwarding idle leases marks "
        "outcomes pace properties queue release seeking time_search"
    ),
    commands={
        "queue": Command("List, make, look at, purge, pause or delete queues.", f"{_FOLDER}.queue_commands:command"),
        "dlq": Command("List, show, replay or drop dead letters.", f"{_FOLDER}.dead_letter_commands:command"),
    },
    routes=(f"{_FOLDER}.routes:routes", f"{_FOLDER}.snapshot_routes:routes", f"{_FOLDER}.moving_routes:routes"),
    pages=(f"{_FOLDER}.pages:add",),
    menu=(("/ui/queues", "Queues"),),
    part_of={"/ui/queue": "/ui/queues", "/ui/queue/dead-letter": "/ui/queues"},
    namespaces=(f"{_FOLDER}.namespace:QUEUES", f"{_FOLDER}.namespace:DEAD_LETTERS"),
    served=f"{_FOLDER}.commands:SERVED",
    right_of=f"{_FOLDER}.namespace:right_of",
    figures=(
        Figure("gauge", "queue_depth", "Messages in a queue that have not come to their end."),
        Figure("gauge", "queue_leased", "Those that consumers have."),
        Figure("gauge", "queue_scheduled", "Those that wait for their next attempt."),
        Figure("gauge", "queue_lag", "Those that no consumer has: depth without leased."),
        Figure(
            *("gauge", "queue_growth_per_second"),
            "Messages that came less those that came to their end, over about a minute.",
        ),
        Figure("gauge", "queue_oldest_seconds", "How long ago the oldest was published."),
        Figure("gauge", "queue_consumers", "Connected consumers."),
        Figure("gauge", "queue_dead_letters", "Dead letters that are kept."),
        Figure("counter", "queue_published", "Messages that the queue took."),
        Figure("counter", "queue_duplicates", "Messages with a dedup-id that the queue knew."),
        Figure(
            *("counter", "queue_refused"),
            "Messages that it did not take: it had no room, or their topic is ephemeral.",
        ),
        Figure("counter", "queue_filtered", "Messages that did not pass its filter."),
        Figure("gauge", "queue_retained", "Messages that ended and are kept for a seek."),
        Figure("gauge", "queue_snapshots", "Snapshots that are kept."),
        Figure("counter", "queue_returned", "Ended messages that a seek had wait again."),
        Figure("counter", "queue_attempts", "Deliveries to consumers."),
        Figure("counter", "queue_redeliveries", "Those that were not the first of a message."),
        Figure(
            *("counter", "queue_nacked_late"),
            "Refusals by $nack that changed nothing, because the message was acknowledged or had ended.",
        ),
        Figure("counter", "dead_letters", "Messages that became dead letters, by cause."),
        Figure("counter", "queue_ended", "Messages that came to their end, by end."),
        Figure("counter", "queue_failures", "Attempts that failed, by cause."),
    ),
)
