"""What is in flight in runs is the same as what is in flight one by one."""

from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.memory import MemoryAccount
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.session.inflight import Inflight, Unacknowledged
from mqttlite.wire.blocks import PUBACKS, PUBRECS, counted
from mqttlite.wire.constants import V311
from mqttlite.wire.encode import encode_publish
from mqttlite.wire.packets import Publish


def batch_of(payloads: str, qos: int) -> PublishBatch:
    """A message for each letter."""
    packets = [encode_publish(Publish(b"t", each.encode(), qos, packet_id=9), V311) for each in payloads]
    return PublishBatch(b"t", b"".join(packets), len(packets[0]), len(packets[0]) - 1, qos, V311)


def said(message: Unacknowledged) -> tuple[str, int]:
    delivery = message.delivery
    assert delivery is not None
    return delivery.message.payload.decode(), delivery.qos


actions = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 4), st.integers(1, 2), st.integers(0, 1)),
        st.tuples(st.just("one"), st.just(1), st.integers(1, 2), st.integers(0, 1)),
        st.tuples(st.just("acknowledge"), st.integers(1, 9), st.integers(1, 2), st.integers(0, 3)),
        st.tuples(st.just("find"), st.integers(0, 9), st.just(1), st.booleans()),
    ),
    max_size=20,
)


@given(actions)
def test_they_behave_like_an_ordered_dictionary(actions: list[tuple[str, int, int, int]]) -> None:
    memory = MemoryAccount(0)
    real, oracle = Inflight(memory), dict[int, tuple[str, int]]()
    next_id = 1
    for action, count, qos, extra in actions:
        if action == "run":
            next_id += extra  # some identifiers are in use elsewhere
            payloads = "".join([chr(97 + (next_id + at) % 26) for at in range(count + extra)])
            real.add_batch(next_id, batch_of(payloads, 2), count, qos)
            oracle |= {next_id + at: (payloads[at], qos) for at in range(count)}
            next_id += count
        elif action == "one":
            next_id += extra
            real.add(next_id, Delivery(Message(b"t", b"*", qos), qos, False), 0)
            oracle[next_id] = "*", qos
            next_id += 1
        elif action == "acknowledge":
            first = list(oracle)[min(extra, len(oracle) - 1)] if oracle else 1
            table = PUBACKS if qos == 1 else PUBRECS
            removed = real.remove_leading(b"?" + counted(table, first, count), 1, table, qos)
            for packet_id in range(first, first + removed):
                assert oracle.pop(packet_id)[1] == qos
        else:
            packet_id = list(oracle)[count % len(oracle)] if oracle and extra else count
            message = real.find(packet_id)
            found = message and said(message)
            assert found == oracle.get(packet_id)
            if found:
                real.remove(packet_id)
                del oracle[packet_id]
        assert len(real) == len(oracle)
        assert (memory.used == 0) == (len(real) == 0) == (real.size_bytes == 0)
        assert memory.used == real.size_bytes
    everything = {packet_id: said(message) for packet_id, message in real.by_id().items()}
    assert list(everything.items()) == list(oracle.items())
    assert real.take_all().keys() == oracle.keys()
    assert len(real) == 0


def test_acknowledgements_go_over_the_ends_of_runs_in_one_step() -> None:
    memory = MemoryAccount(0)
    inflight = Inflight(memory)
    for first in (1, 4, 7):
        inflight.add_batch(first, batch_of("abc", 1), 3, 1)
    assert inflight.remove_leading(counted(PUBACKS, 1, 8), 0, PUBACKS, 1) == 8
    assert list(inflight.by_id()) == [9]
    inflight.remove(9)
    assert memory.used == inflight.size_bytes == 0


def test_a_receiver_of_another_version_or_qos_shares_what_is_made_for_the_first() -> None:
    run = batch_of("ab", 2)
    assert run.delivery(1, 1) is run.delivery(1, 1)
    assert run.delivery(1, 1) is not run.delivery(1, 2)
    assert run.frames(V311, 0, 0, 2) is run.frames(V311, 0, 0, 2)
