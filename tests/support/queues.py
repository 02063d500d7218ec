"""A core with queues, and what consumers read in the properties of their messages."""

from collections.abc import Sequence

from mqttlite.core.broker import Broker
from mqttlite.core.limits import Limits
from mqttlite.core.message_filter import FilterCompiler, NoFilters
from mqttlite.extensions.queues.control import ACTIONS, QueueControl
from mqttlite.extensions.queues.limits import MAX_LANE
from mqttlite.extensions.queues.options import DeliveryOptions, QueueOptions, RetryOptions
from mqttlite.extensions.queues.service import Queues
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V5
from mqttlite.wire.packets import Ack, Publish
from tests.support.core_driver import START, Client, World, publishes
from tests.support.memory import assert_nothing_is_held, end_everything


def options(name: str = "q", *filters: str, **fields: object) -> QueueOptions:
    """A queue of `a/#` with a deadline of ten seconds, and back-offs of one to four."""
    retry = fields.pop("retry", RetryOptions(min_s=1, max_s=4))
    return QueueOptions(name=name, filters=filters or ("a/#",), retry=retry, **fields)  # type: ignore[arg-type]


class QueueWorld(World):
    """`queues` are those of the configuration."""

    def __init__(
        self,
        queues: Sequence[QueueOptions] = (),
        store: MemoryStore | None = None,
        now: float = START,
        delivery: DeliveryOptions | None = None,
        limits: Limits | None = None,
        filters: FilterCompiler | None = None,
        max_lane: int = MAX_LANE,
    ) -> None:
        self._max_lane = max_lane
        self._made: list[Queues] = []
        self._options = tuple(queues)

        def serve(broker: Broker) -> None:
            made = Queues(broker, queues, delivery or DeliveryOptions(), lambda: self.now, 0, filters or NoFilters())
            made._builder.context.max_lane = max_lane
            self._made.append(made)
            broker.serve(made)
            for action in ACTIONS:
                control = QueueControl(made, action)
                broker.bind(control.topic_filter, control)

        super().__init__(limits, store, now, filters=filters, before_restore=serve)
        self.settle()

    @property
    def queues(self) -> Queues:
        return self._made[-1]

    def restart(self, limits: Limits | None = None) -> "QueueWorld":
        """Another broker with the same store and configuration; it was killed."""
        return QueueWorld(self._options, self.store, self.now, limits=limits, max_lane=self._max_lane)

    def ends(self, name: str = "q") -> dict[str, int]:
        """How many messages came to which end, without those to which none came."""
        return {end: count for end, count in self.queues.state(name).ends.items() if count}

    def end(self) -> None:
        for name in self.queues.names:
            self.queues.delete(name)
        end_everything(self.broker, self.now)
        self.settle()
        latest = self.queues._builder.context  # what is shared with the next message
        latest.latest = None
        assert_nothing_is_held(self.broker.effects.memory)


def consumer(world: QueueWorld, name: str = "c", version: int = V5, **fields: object) -> Client:
    """A consumer of the queue `q` that acknowledges when it is told to."""
    client = world.connect(name, version, **{"auto_ack": False, **fields})
    assert client.subscribe("$queue/q", qos=1) == b"\x01"
    return client


def ack(client: Client, packet: object, code: int = 0) -> None:
    """The consumer sends PUBACK."""
    assert isinstance(packet, Publish)
    client.send(Ack(PUBACK, packet.packet_id, code))


def told(packet: Publish) -> dict[str, str]:
    """The user properties of a message."""
    return dict(packet.properties.user_properties)


def deliveries(packets: Sequence[object]) -> list[tuple[str, int]]:
    """The payloads of messages with the numbers of their attempts."""
    return [(each.payload.decode(), int(told(each)["delivery-attempt"])) for each in publishes(packets)]  # type: ignore[arg-type]
