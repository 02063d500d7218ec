"""The parts of a running broker that its public interface does not show, for tests over real sockets.

These are the only private attributes of `mqttlite.server.Broker` that those tests read: what is behind one of them has
no other public name. Clients and retained messages are in `broker.admin`, connections of a listener in `listener.open`.
"""

from mqttlite.assembly import Assembly
from mqttlite.core.broker import Broker as Core
from mqttlite.extensions.push.service import Push
from mqttlite.extensions.queues.queueing import Queueing
from mqttlite.extensions.streams.history import ReadEntries
from mqttlite.extensions.streams.service import Streams
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.security.auth_questions import AuthQuestions
from mqttlite.server import Broker


def core_of(broker: Broker) -> Core:
    """The core of a broker that was started."""
    return broker._core


def loop_driver_of(broker: Broker) -> LoopDriver:
    """Commits, writes and links of a broker that was started."""
    return broker._loop_driver


def questions_of(broker: Broker) -> AuthQuestions:
    """The questions that wait for an authenticator, counted by `len`."""
    return broker._assembly.questions


def push_of(broker: Broker) -> Push:
    """What pushes the messages of queues."""
    push = broker._assembly.push
    assert push is not None
    return push


def queueing_of(broker: Broker) -> Queueing:
    """What serves the queues of a broker that was started."""
    queueing = broker._assembly.queueing
    assert queueing is not None
    return queueing


def assembly_of(broker: Broker) -> Assembly:
    """The objects of a broker that was started."""
    return broker._assembly


def streams_of(broker: Broker) -> tuple[Streams, ReadEntries]:
    """The streams of a broker that was started, and what reads its store."""
    streams = broker._assembly.streams
    assert streams is not None
    return streams, broker._assembly._runtime.queue_reader.entries
