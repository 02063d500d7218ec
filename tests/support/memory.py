"""What the memory account still has when nothing is left to be kept: nothing, unless somebody did not let go."""

from mqttlite.core.broker import Broker
from mqttlite.core.memory import MemoryAccount
from mqttlite.core.message import Message
from mqttlite.core.retained.retained_store import RetainedStore
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.topics.retained import EMPTY_ENTRIES


def end_everything(broker: Broker, now: float) -> None:
    """End all connections, sessions, retained and delayed messages, and forget what the broker keeps to be quick."""
    for connection in list(broker.connections.values()):
        broker.close(connection, now)
    broker.shut_down(now)  # which finishes all jobs
    for session in broker.sessions.values():
        broker.end_session(session.client_id, now)
    broker.shut_down(now)
    for delayed in broker.delayed.page(0, 1_000_000):
        broker.cancel_delayed(delayed.number, now)
    retained = broker.router.retained
    for message in retained.search(b"#").take(1_000_000):
        _remove(retained, message.topic)
    for number in range(EMPTY_ENTRIES + 1):  # the store remembers some topics that it had
        topic = b"forget %d" % number
        retained.restore(Message(topic, b"x"))
        _remove(retained, topic)
    broker.authorize(built_in_rules())  # which forgets all routes


def _remove(retained: RetainedStore, topic: bytes) -> None:
    retained.put(Message(topic, b""))
    retained.order.exhume(topic)


def assert_nothing_is_held(memory: MemoryAccount) -> None:
    assert (memory.used, memory.droppable) == (0, 0)
