"""The outgoing half of a connection: what it keeps while its link is blocked, what it drops, and when it gives up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.effects import Effects
from mqttlite.core.limits import DISCONNECT, DROP_NEWEST, DROP_OLDEST, OVERFLOW_POLICIES, Limits
from mqttlite.core.memory import CHUNK_BYTES, FRAME_BYTES, PLACE_BYTES
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.reasons import BUFFER_FULL, PACKET_TOO_LARGE
from tests.support.core_driver import World

PIECE_BYTES = PLACE_BYTES + FRAME_BYTES
"""What a piece of QoS 0 messages takes that waits, beside its bytes."""


def outbox_of(on_overflow: str = DROP_NEWEST, max_bytes: int = 1_024, max_messages: int = 100) -> Outbox:
    limits = Limits(max_outbox_bytes=max_bytes, max_outbox_messages=max_messages, on_overflow=on_overflow)
    return Outbox(7, Effects(), limits)


def run(*letters: str, size: int = 100) -> bytes:
    """A run of messages of one size, each made of one letter."""
    return b"".join([letter.encode() * size for letter in "".join(letters)])


def letters(outbox: Outbox, size: int = 100) -> str:
    """The first letters of all messages that leave when the link takes bytes again."""
    outbox.unblock()
    return outbox.take().decode()[::size]


def test_waiting_messages_are_reported_in_bytes() -> None:
    outbox = outbox_of()
    outbox.send(b"ab")
    assert outbox.waiting_bytes == 0
    outbox.block()
    outbox.offer(b"c" * 10, 1)
    assert outbox.waiting_bytes == CHUNK_BYTES + 2 + PIECE_BYTES + 10
    outbox.unblock()
    assert outbox.waiting_bytes == 0


# ── an open link ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_outbox_with_something_to_write_is_in_the_turn_once() -> None:
    outbox = outbox_of()
    outbox.offer(b"a", 1)
    outbox.send(b"b")
    outbox.offer(b"c", 1)
    assert outbox.effects.dirty == [outbox]
    assert outbox.take() == b"abc"
    assert not outbox.dirty
    assert outbox.bytes_sent == 3


def test_an_outbox_that_was_emptied_is_in_the_turn_again_with_the_next_frame() -> None:
    outbox = outbox_of()
    outbox.send(b"a")
    outbox.effects.dirty.clear()
    outbox.take()
    outbox.send(b"b")
    assert outbox.effects.dirty == [outbox]


def test_an_open_link_takes_more_than_the_limit() -> None:
    outbox = outbox_of(DISCONNECT)
    outbox.offer(b"x" * 5_000, 5)
    outbox.send(b"x" * 5_000)
    assert len(outbox.take()) == 10_000
    assert outbox.sent_qos0 == 5
    assert outbox.drops == {}
    assert outbox.effects.overflowed == []


def test_only_a_packet_above_the_clients_maximum_is_too_large_and_it_is_counted() -> None:
    outbox = outbox_of()
    assert not outbox.is_too_large(10**9)
    outbox.limit_packets(100)
    assert not outbox.is_too_large(100)
    assert outbox.is_too_large(101)
    outbox.drop_too_large(101, b"t", 0)
    assert outbox.drops == {PACKET_TOO_LARGE: 1}


# ── a blocked link ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_blocked_outbox_stays_out_of_the_turn_until_its_link_takes_bytes() -> None:
    outbox = outbox_of()
    outbox.block()
    outbox.offer(b"message", 1)
    outbox.send(b"answer")
    assert outbox.effects.dirty == []
    outbox.unblock()
    assert outbox.effects.dirty == [outbox]
    assert outbox.take() == b"answermessage"


def test_a_message_counts_as_sent_when_it_leaves() -> None:
    outbox = outbox_of()
    outbox.block()
    outbox.offer(run("abc"), 3)
    assert outbox.sent_qos0 == 0
    outbox.unblock()
    assert outbox.sent_qos0 == 3


def test_unblocking_an_outbox_that_kept_nothing_leaves_the_turn_empty() -> None:
    outbox = outbox_of()
    outbox.block()
    outbox.unblock()
    assert outbox.effects.dirty == []


def test_entries_dirty_before_the_block_are_in_the_turn_once() -> None:
    outbox = outbox_of()
    outbox.send(b"a")
    outbox.block()
    outbox.offer(b"b", 1)
    outbox.unblock()
    assert outbox.effects.dirty == [outbox]
    assert outbox.take() == b"ab"


def test_messages_that_waited_before_the_block_count_until_they_are_taken() -> None:
    outbox = outbox_of(max_bytes=1_024)
    outbox.send(b"x" * 1_000)
    outbox.block()
    outbox.offer(run("a"), 1)
    assert outbox.drops == {BUFFER_FULL: 1}
    outbox.take()
    outbox.offer(run("b"), 1)
    assert outbox.drops == {BUFFER_FULL: 1}
    assert letters(outbox) == "b"


@pytest.mark.parametrize(("messages", "dropped"), [(3, 0), (4, 0), (5, 1)])
def test_messages_are_kept_up_to_their_limit(messages: int, dropped: int) -> None:
    outbox = outbox_of(max_messages=4)
    outbox.block()
    for letter in "abcde"[:messages]:
        outbox.offer(run(letter), 1)
    assert outbox.drops.get(BUFFER_FULL, 0) == dropped
    assert letters(outbox) == "abcd"[:messages]


@pytest.mark.parametrize(("size", "kept"), [(255, 4), (256, 4), (257, 3)])
def test_bytes_are_kept_up_to_their_limit(size: int, kept: int) -> None:
    outbox = outbox_of(max_bytes=4 * (PIECE_BYTES + 256))
    outbox.block()
    for letter in "abcd":
        outbox.offer(run(letter, size=size), 1)
    assert letters(outbox, size) == "abcd"[:kept]
    assert outbox.drops.get(BUFFER_FULL, 0) == 4 - kept


def test_of_a_run_that_fits_in_part_the_first_are_kept() -> None:
    outbox = outbox_of(max_messages=4)
    outbox.block()
    outbox.offer(run("ab"), 2)
    outbox.offer(run("cdefg"), 5)
    assert outbox.drops == {BUFFER_FULL: 3}
    assert letters(outbox) == "abcd"


def test_dropping_the_oldest_keeps_the_last() -> None:
    outbox = outbox_of(DROP_OLDEST, max_messages=4)
    outbox.block()
    outbox.offer(run("abc"), 3)
    outbox.offer(run("de"), 2)
    assert outbox.drops == {BUFFER_FULL: 1}
    outbox.offer(run("fghijk"), 6)
    assert outbox.drops == {BUFFER_FULL: 7}
    assert letters(outbox) == "hijk"


def test_dropping_the_oldest_drops_no_more_than_it_takes() -> None:
    outbox = outbox_of(DROP_OLDEST, max_bytes=5 * PIECE_BYTES + 1_024)
    outbox.block()
    for letter in "abcd":
        outbox.offer(run(letter, size=250), 1)
    outbox.offer(run("xyz", size=10), 3)  # six bytes too many: one of 250 goes
    assert outbox.drops == {BUFFER_FULL: 1}
    outbox.unblock()
    assert outbox.take() == run("bcd", size=250) + run("xyz", size=10)


def test_older_entries_go_before_newer_ones() -> None:
    outbox = outbox_of(DROP_OLDEST, max_bytes=2 * PIECE_BYTES + 1_024)
    outbox.block()
    outbox.offer(run("abc", size=5), 3)
    outbox.offer(run("vwxyz", size=250), 5)  # four fit, and the small ones beside them would
    assert outbox.drops == {BUFFER_FULL: 4}
    assert letters(outbox, size=250) == "wxyz"


def test_many_small_messages_give_way_to_a_large_one() -> None:
    outbox = outbox_of(DROP_OLDEST, max_bytes=2 * PIECE_BYTES + 1_024)
    outbox.block()
    outbox.offer(run("abcdefghij", size=100), 10)
    outbox.offer(run("X", size=300), 1)
    assert outbox.drops == {BUFFER_FULL: 3}
    outbox.unblock()
    assert outbox.take() == run("defghij", size=100) + run("X", size=300)


@pytest.mark.parametrize("on_overflow", [DROP_NEWEST, DROP_OLDEST])
def test_a_message_that_can_never_fit_costs_the_others_nothing(on_overflow: str) -> None:
    outbox = outbox_of(on_overflow, max_bytes=1_024)
    outbox.block()
    outbox.offer(run("abc"), 3)
    outbox.offer(run("X", size=1_025), 1)
    assert outbox.drops == {BUFFER_FULL: 1}
    assert letters(outbox) == "abc"


def test_the_policy_to_disconnect_asks_for_it_and_keeps_what_fits() -> None:
    outbox = outbox_of(DISCONNECT, max_messages=2)
    outbox.block()
    outbox.offer(run("ab"), 2)
    assert outbox.effects.overflowed == []
    outbox.offer(run("c"), 1)
    assert outbox.effects.overflowed == [7]
    assert outbox.drops == {BUFFER_FULL: 1}


@pytest.mark.parametrize("on_overflow", OVERFLOW_POLICIES)
def test_messages_give_way_to_answers(on_overflow: str) -> None:
    outbox = outbox_of(on_overflow, max_bytes=PIECE_BYTES + 1_000 + CHUNK_BYTES + 24)
    outbox.block()
    outbox.offer(run("ab", size=500), 2)
    outbox.send(b"!" * 24)
    assert outbox.drops == {}
    outbox.send(b"!")
    assert outbox.drops == {BUFFER_FULL: 1}, "no more than it takes"
    outbox.send(b"!" * (499 - 2 * CHUNK_BYTES))
    assert outbox.drops == {BUFFER_FULL: 1}
    outbox.send(b"!")
    assert outbox.drops == {BUFFER_FULL: 2}
    assert outbox.effects.overflowed == []
    outbox.unblock()
    assert outbox.take() == b"!" * (525 - 2 * CHUNK_BYTES)


def test_a_client_whose_answers_fill_the_limit_is_cut_off() -> None:
    outbox = outbox_of(max_bytes=CHUNK_BYTES + 1_024)
    outbox.block()
    outbox.send(b"!" * 1_024)
    assert outbox.effects.overflowed == []
    outbox.send(b"!")
    assert outbox.effects.overflowed == [7]


def test_the_high_water_marks_stay_when_the_water_goes() -> None:
    outbox = outbox_of()
    outbox.block()
    outbox.offer(run("abc"), 3)
    outbox.send(b"!" * 50)
    outbox.unblock()
    outbox.take()
    outbox.block()
    outbox.offer(run("a"), 1)
    assert outbox.high_water_messages == 3
    assert outbox.high_water_bytes == PIECE_BYTES + 300 + CHUNK_BYTES + 50


def test_messages_kept_when_the_connection_ends_are_counted_as_dropped() -> None:
    outbox = outbox_of()
    outbox.block()
    outbox.offer(run("ab"), 2)
    outbox.offer(run("c"), 1)
    outbox.send(b"last words")
    outbox.give_up()
    assert outbox.drops == {BUFFER_FULL: 3}
    outbox.unblock()
    assert outbox.take() == b"last words"
    assert outbox.sent_qos0 == 0


def test_the_first_frames_are_taken_and_the_rest_stays_to_be_written() -> None:
    outbox = outbox_of()
    for frame in (b"a", b"b", b"c"):
        outbox.send(frame)
    assert outbox.take_first(2) == b"ab"
    assert outbox.dirty
    assert outbox.take_first(1) == b"c"
    assert not outbox.dirty
    assert outbox.bytes_sent == 3


def test_a_frame_is_taken_out_wherever_it_waits() -> None:
    outbox, ping = outbox_of(), b"\xd0\0"
    for frame in (b"a", ping, b"b", ping):
        outbox.send(frame)
    assert outbox.take_out(ping, 2) == (2, 1)
    assert outbox.take_out(ping, 2) == (0, 0)
    assert (outbox.take(), outbox.bytes_sent) == (b"ab", 6)
    outbox.block()
    outbox.send(ping)
    assert outbox.take_out(ping, 0) == (1, 0)
    assert outbox.waiting_bytes == 0


def test_frames_behind_those_taken_from_a_blocked_outbox_still_count() -> None:
    outbox = outbox_of()
    for frame in (b"a", b"b", b"c"):
        outbox.send(frame)
    outbox.block()
    assert outbox.take_first(2) == b"ab"
    assert outbox.waiting_bytes == outbox.effects.memory.used == 1 + CHUNK_BYTES


# ── a backlog that leaves in parts ─────────────────────────────────────────────────────────────────────────────────


def draining_outbox() -> Outbox:
    """Of its three messages of 100 bytes the first is to be written, and the link takes bytes."""
    outbox = outbox_of(DROP_OLDEST, max_messages=3)
    outbox.block()
    for letter in "abc":
        outbox.offer(run(letter), 1)
    assert outbox.drain(1) == 132
    return outbox


def test_a_backlog_leaves_in_parts_and_in_order() -> None:
    outbox = draining_outbox()
    two, one = 2 * (PIECE_BYTES + 100), CHUNK_BYTES + 100
    assert (outbox.blocked, outbox.draining, outbox.waiting_bytes, outbox.sent_qos0) == (True, True, two + one, 1)
    assert outbox.effects.dirty == [outbox]
    assert outbox.take() == run("a")
    assert outbox.waiting_bytes == two
    assert outbox.drain(133) == 264
    assert (outbox.blocked, outbox.draining, outbox.waiting_bytes, outbox.sent_qos0) == (False, False, 0, 3)
    assert outbox.take() == run("bc")


def test_messages_that_come_meanwhile_go_behind_the_backlog_within_its_limits() -> None:
    outbox = draining_outbox()
    outbox.offer(run("de"), 2)
    assert outbox.drops == {BUFFER_FULL: 1}
    assert letters(outbox) == "acde"


def test_an_answer_that_comes_meanwhile_is_written_at_once() -> None:
    outbox = draining_outbox()
    outbox.take()
    outbox.effects.dirty.clear()
    outbox.send(b"answer")
    assert outbox.effects.dirty == [outbox]
    assert outbox.take() == b"answer"


def test_a_link_that_takes_no_more_ends_the_draining() -> None:
    outbox = draining_outbox()
    outbox.take()
    outbox.effects.dirty.clear()
    outbox.block()
    assert (outbox.blocked, outbox.draining, outbox.waiting_bytes) == (True, False, 2 * (PIECE_BYTES + 100))
    outbox.send(b"answer")
    assert outbox.effects.dirty == []
    outbox.unblock()
    assert outbox.take() == b"answer" + run("bc")


# ── whatever happens ───────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.sampled_from(OVERFLOW_POLICIES),
    st.lists(
        st.tuples(st.just("offer"), st.integers(2, 400), st.integers(1, 5))
        | st.tuples(st.just("send"), st.integers(1, 200), st.just(1))
        | st.tuples(st.just("drain"), st.integers(0, 800), st.just(0))
        | st.tuples(st.just("block"), st.integers(0, 1_000), st.just(0))
        | st.tuples(st.just("take first"), st.integers(1, 3), st.just(0))
        | st.tuples(st.sampled_from(["unblock", "take", "shed"]), st.just(0), st.just(0)),
        max_size=50,
    ),
    st.booleans(),
)
def test_every_message_is_sent_or_counted_and_no_more_is_kept_than_allowed(
    on_overflow: str, steps: list[tuple[str, int, int]], is_lost: bool
) -> None:
    max_bytes = 1_024 + 4 * PIECE_BYTES
    outbox = outbox_of(on_overflow, max_bytes, max_messages=8)
    memory = outbox.effects.memory
    offered = sent_bytes = answers = unsent = 0
    for step, size, messages in steps:
        if step == "offer":
            outbox.offer(b"m" * size * messages, messages)
            offered += messages
        elif step == "send":
            outbox.send(b"!" * size)
            answers += size
        elif step == "take":
            sent_bytes += outbox.take().count(b"!")
        elif step == "take first":
            sent_bytes += outbox.take_first(size).count(b"!")
        elif step == "shed":
            outbox.shed()
            assert outbox.backlog_bytes == 0
        elif step == "block":
            outbox.block(size)
            unsent = size
        elif step == "drain" and outbox.blocked:
            assert outbox.drain(size) >= 0
            assert outbox.draining is outbox.blocked is (outbox.backlog_bytes > 0)
            unsent = 0
        elif step == "unblock" and outbox.blocked:
            outbox.unblock()
            unsent = 0
        kept = offered - outbox.sent_qos0 - outbox.drops.get(BUFFER_FULL, 0)
        assert 0 <= kept <= 8
        assert (kept == 0) == (outbox.backlog_bytes == 0)
        assert outbox.backlog_bytes == 0 or outbox.waiting_bytes <= max_bytes
        chunk_bytes = sum(CHUNK_BYTES + len(chunk) for chunk in outbox.chunks) if outbox.blocked else 0
        assert outbox.waiting_bytes == outbox.backlog_bytes + chunk_bytes
        assert outbox.held_bytes == outbox.waiting_bytes + unsent
        assert (memory.used, memory.droppable) == (outbox.held_bytes, outbox.backlog_bytes)
    if is_lost:
        outbox.give_up()
        outbox.release()
    elif outbox.blocked:
        outbox.unblock()
    assert outbox.sent_qos0 + outbox.drops.get(BUFFER_FULL, 0) == offered
    sent_bytes += outbox.take().count(b"!")
    assert sent_bytes == answers, "an answer is never dropped"
    assert (memory.used, memory.droppable, outbox.held_bytes) == (0, 0, 0)


def test_a_link_that_says_twice_that_it_takes_bytes_is_in_the_backlog_once() -> None:
    world = World()
    reader = world.connect("reader")
    reader.subscribe("t")
    reader.block()
    for _ in range(3):
        world.publish("t", "x" * 200_000)
    for _ in range(2):
        world.broker.unblock(reader.connection, world.now)
    assert world.broker.effects.backlogged == [reader.connection.number]
    world.settle()
    assert len(reader.payloads()) == 3
