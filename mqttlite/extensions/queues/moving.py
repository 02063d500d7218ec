"""A queue that goes to another node: what goes with it, and what keeps it where it is.

The node that gets it says that it was made a little earlier: of two queues with one name the older one stays, and the
other gives it its messages (`extensions.nodes.places`).
"""

import msgspec

from mqttlite.extensions.queues.ack_ids import new_key
from mqttlite.extensions.queues.errors import QueueStays
from mqttlite.extensions.queues.managed import ManagedQueue
from mqttlite.extensions.queues.records import Definition


def departing(kept: ManagedQueue) -> Definition:
    """The definition of a queue for the node that gets it. Its `ack-id`s are others there. Raises `QueueStays` for one
    that would lose something on its way."""
    reason = _why_it_stays(kept)
    if reason:
        raise QueueStays(f"the queue {kept.options.name} cannot move: {reason}")
    definition = msgspec.json.decode(kept.definition(), type=Definition)
    return msgspec.structs.replace(definition, ack_key=new_key(), made_us=kept.made_us - 1)


def _why_it_stays(kept: ManagedQueue) -> str:
    queue = kept.queue
    if kept.is_leaving:
        return "it is on its way to another node already"
    if kept.made_us < 1:
        return "it was made by an earlier version, and it is not known when"
    contents, options = queue.contents, kept.options
    if 2 * contents.depth > options.max_messages or 2 * contents.size_bytes > options.max_bytes:
        return "it is more than half full, and what follows it could meet a full queue: raise its limits first"
    if len(kept.dead_letters):
        return "it has dead letters, which stay: replay or drop them first"
    if queue.seeking.holds:
        return "it has snapshots, which stay: delete them first"
    if contents.retention.count:
        return "it keeps acknowledged messages, which stay: make it keep none first (retain_acked)"
    if queue.ids is not None and len(queue.ids):
        return "it knows the dedup-ids of messages, and another node would take one of them again"
    return ""
