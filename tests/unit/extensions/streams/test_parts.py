"""Keys, positions, segments and places of streams, each on its own."""

import pytest

from mqttlite.core.effects import Effects
from mqttlite.core.message import Delivery, Message
from mqttlite.core.question import Entries
from mqttlite.extensions.streams.history import first_since, has
from mqttlite.extensions.streams.keys import cached_partitions, murmur2, partition_of
from mqttlite.extensions.streams.namespace import STREAMS, right_of
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.position import EARLIEST, LATEST, Position, Start, parse_position
from mqttlite.extensions.streams.records import (
    SavedSegments,
    StreamRecordError,
    decode_cursor,
    decode_definition,
    decode_segments,
)
from mqttlite.log.cursor import Cursor, Place
from mqttlite.log.segments import MAX_SEGMENTS, Segments


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # from `org.apache.kafka.common.utils.UtilsTest.testMurmur2`
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_is_hashed_as_kafka_does(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_known_partitions_are_remembered_up_to_a_limit() -> None:
    of = cached_partitions(5, 2)
    keys = [b"a", b"b", b"c", b"a"]
    assert [of(each) for each in keys] == [partition_of(each, 5) for each in keys]
    (known,) = [each.cell_contents for each in of.__closure__ or () if isinstance(each.cell_contents, dict)]
    assert len(known) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("2:17", Position(Start.LATEST, offsets=((2, 17),))),
        ("2:17,0:5", Position(Start.LATEST, offsets=((2, 17), (0, 5)))),
        ("earliest,2:17", Position(Start.EARLIEST, offsets=((2, 17),))),
        ("1795895671480326,2:17", Position(Start.TIME, 1795895671480326, ((2, 17),))),
        ("1795895671480326", Position(Start.TIME, 1795895671480326)),
        ("2026-11-28T19:54:31.480326Z", Position(Start.TIME, 1795895671480326)),
        ("2026-11-28T19:54:31.480326", Position(Start.TIME, 1795895671480326)),
        ("2026-11-28T20:54:31.480326+01:00", Position(Start.TIME, 1795895671480326)),
        ("1960-01-01", Position(Start.TIME, 0)),
    ],
)
def test_a_position_has_four_forms(text: str, expected: Position) -> None:
    assert parse_position(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "noon",
        "1:",
        ":1",
        "1:2,",
        "1:2,3",
        "latest,1:2",
        "earliest,",
        "noon,1:2",
        "-1",
        "1:2:3",
        "99999:1",
        "1e3",
        "\u0663",
        "20261128",
        "1795895671",
    ],
)
def test_another_text_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="is no position: it is earliest, latest, a time"):
        parse_position(text)


def test_a_position_has_one_offset_of_a_partition() -> None:
    with pytest.raises(ValueError, match="'1:2,1:3' has two offsets of one partition"):
        parse_position("1:2,1:3")


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"name": "a b"}, "name is 'a b'"),
        ({"name": "x" * 129}, "name is"),
        ({"filters": ("a", "a")}, "names a filter twice"),
        ({"filters": ("a/#/b",)}, "filters: "),
        ({"filters": ("$SYS/#", "$queue/x")}, "is bound to plain topics"),
        ({"filters": tuple(map(str, range(101)))}, "101 filters: 100 at most"),
        ({"partitions": 0}, "partitions is 0: it may be 1 to 1000"),
        ({"partitions": 1001}, "partitions is 1001"),
        ({"keep_s": -1}, "keep_s is -1"),
        ({"keep_bytes": 0}, "keep_bytes is 0: 1 at least"),
    ],
)
def test_wrong_options_are_refused(fields: dict[str, object], refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        StreamOptions(**{"name": "s", **fields})  # type: ignore[arg-type]


def test_a_filter_of_the_namespace_is_refused_with_a_sentence() -> None:
    for name, rest, refusal in (
        (b"", b"", "the name of one stream follows"),
        (b"+", b"", "the name of one stream follows"),
        (b"s@noon", b"", "'noon' is no position"),
        (b"s@", b"", "'' is no position"),
        (b"s", b"$seek", "no message comes on its control topics"),
        (b"s@earliest", b"a/#", ""),
        (b"s", b"", ""),
    ):
        found = STREAMS.filter_refusal(name, rest)
        assert (refusal in found, bool(refusal)) == (True, bool(found)), name


def test_the_right_to_publish_to_a_stream_is_about_its_topic() -> None:
    right = right_of(b"$stream/s")
    assert right is not None
    assert right.topic == b"$stream/s"
    assert right_of(b"$queue/s") is None


def test_segments_begin_by_size_and_by_time() -> None:
    segments = Segments(most_bytes=10, most_us=100)
    begins = [segments.add(offset, number, 5) for offset, number in enumerate((1, 2, 3, 4, 102, 103, 250))]
    assert begins == [True, False, True, False, True, False, True]
    assert segments.rows() == [(0, 1, 2, 10), (2, 3, 4, 10), (4, 102, 103, 10), (6, 250, 250, 5)]
    assert [segments.around(number, 7) for number in (0, 1, 3, 101, 102, 300)] == [
        (0, 0, 0, 0, 0),
        (0, 0, 1, 1, 0),
        (0, 2, 1, 3, 0),
        (2, 4, 3, 102, 0),
        (2, 4, 3, 102, 0),
        (6, 7, 250, 250, 0),
    ]
    assert [segments.ends_before(number) for number in (2, 3)] == [False, True]
    assert (len(segments), segments.first, segments.oldest) == (4, 0, 1)


async def test_a_time_is_found_in_a_long_log_with_few_reads() -> None:
    """Each waits for the store, and for the commits before it."""
    rows = [(first, 10 * first, 10 * first + 49_990, 1) for first in range(0, 1_000_000, 5_000)]
    partition = Partition("s", 0, Effects(), Segments(1, 0), False)
    partition.restore(0, 1_000_000, len(rows), SavedSegments(segments=rows, lateness=[0] * len(rows)), 10_000_000)
    reads: list[int] = []

    async def entries(key: str, first: int, end: int, count: int) -> Entries:
        reads.append(first)
        message = Message(b"t", b"", 1)
        message.number = 10 * first
        return Entries([(first, Delivery(message, 1, False))], first + 1)

    for number in (7_777_770, 7_777_761, 9_999_990, 10):
        reads.clear()
        assert await first_since(partition, number, entries) == -(-number // 10)
        assert len(reads) <= 4
    assert await first_since(partition, 9_999_991, entries) == 1_000_000


async def test_a_compacted_log_asks_the_store_for_its_messages() -> None:
    partition = Partition("s", 0, Effects(), Segments(1, 0), False)
    partition.restore(1, 7, 7, SavedSegments(), 0)
    partition.restore_clean(SavedSegments(clean=5))
    asked: list[int] = []

    async def entries(key: str, first: int, end: int, count: int) -> Entries:
        asked.append(first)
        delivery = Delivery(Message(b"t", b"", 1), 1, False)
        return Entries([(3, delivery)] if first <= 3 < end else [], end)

    assert [await has(partition, offset, entries) for offset in range(9)] == [
        *(False, False, False, True, False),
        *(True, True, True, False),
    ]
    assert asked == [1, 2, 3, 4]


def test_a_log_without_entries_has_no_segment() -> None:
    segments = Segments(most_bytes=10, most_us=100)
    assert (segments.ends_before(1_000), segments.oldest, segments.first) == (False, 0, -1)
    assert segments.around(5, 3) == (3, 3, 5, 5, 0)


def test_two_segments_become_one_when_there_are_too_many_except_the_open_one() -> None:
    segments = Segments(most_bytes=1, most_us=0)
    for at in range(MAX_SEGMENTS + 1):
        segments.add(at, 10 * at, 2)
    assert len(segments) == MAX_SEGMENTS // 2 + 1
    assert segments.rows()[:2] == [(0, 0, 10, 4), (2, 20, 30, 4)]
    assert segments.rows()[-1] == (MAX_SEGMENTS, 10 * MAX_SEGMENTS, 10 * MAX_SEGMENTS, 2)
    odd = Segments(1, 0)
    odd.restore([(at, at, at, 2) for at in range(MAX_SEGMENTS - 1)], 0, 2 * MAX_SEGMENTS, 0)
    for at in range(MAX_SEGMENTS - 1, MAX_SEGMENTS + 2):
        odd.add(at, at, 2)
    assert sum(each[3] for each in odd.rows()) == 2 * MAX_SEGMENTS + 6


def test_an_odd_segment_stays_alone_when_others_become_one() -> None:
    segments = Segments(most_bytes=1, most_us=0)
    segments.restore([(at, at, at, 1) for at in range(MAX_SEGMENTS + 1)], 0, MAX_SEGMENTS + 1, 0)
    segments.add(MAX_SEGMENTS + 1, 9_999, 1)
    assert segments.rows()[-2][:3] == (MAX_SEGMENTS, MAX_SEGMENTS, MAX_SEGMENTS)


def test_of_a_large_segment_only_a_part_is_dropped() -> None:
    segments = Segments(most_bytes=10, most_us=0)
    segments.restore([(0, 5, 9, 100), (50, 10, 12, 15)], 0, 115, 0)
    assert segments.drop_first(60) == 10
    assert segments.rows()[0] == (5, 5, 9, 90)
    dropped = 0
    while segments.first < 50:
        dropped += segments.drop_first(60)
    assert (dropped, segments.first) == (90, 50)
    assert segments.drop_first(60) == 15
    assert len(segments) == 0
    segments.restore([], 7, 1_000, 0)
    assert segments.drop_first(8) == 1_000, "one entry is not divided"


def test_segments_are_restored_from_their_record_and_what_the_store_has() -> None:
    segments = Segments(10, 100)
    segments.restore([(0, 1, 2, 10), (2, 3, 4, 10), (4, 102, 102, 5)], first=2, size_bytes=30, now=0)
    assert segments.rows() == [(2, 3, 4, 10), (4, 102, 202, 20)], "an entry after 202 would have begun another one"
    segments.restore(
        [(0, 1, 2, 10), (2, 3, 4, 10)], first=1, size_bytes=12, now=0
    )  # a damaged store lost the first entry
    assert segments.rows() == [(1, 1, 2, 10), (2, 3, 103, 2)]
    segments.restore([], first=5, size_bytes=7, now=9)
    assert segments.rows() == [(5, 9, 109, 7)]


def test_a_place_moves_over_what_is_done_without_gaps() -> None:
    place = Place(5)
    for _ in range(4):
        assert place.take() == place.head
        place.send()
    place.acknowledge(6)
    place.acknowledge(8)
    assert (place.position, place.head, place.unacknowledged) == (5, 9, 2)
    place.go_back()
    assert (place.take(), place.unacknowledged) == (5, 0)
    place.send()
    assert place.take() == 7, "6 is done"
    place.skip()
    place.acknowledge(5)
    assert (place.position, place.take()) == (9, 9)
    assert place.ahead is None
    place.acknowledge(5)  # late
    assert place.position == 9


def test_a_place_finishes_what_was_sent_before_its_acknowledgements() -> None:
    place = Place(5)
    for _ in range(4):
        place.send()
    place.acknowledge(7)
    place.finish_before(7)
    assert (place.position, place.head, place.unacknowledged) == (8, 9, 3)
    place.acknowledge(5)
    place.finish_before(6)
    assert (place.position, place.unacknowledged) == (8, 2)


def test_a_place_jumps_over_what_was_removed_and_counts_what_was_not_done() -> None:
    place = Place(0)
    for _ in range(3):
        place.send()
    place.acknowledge(1)
    assert place.jump(10) == 7
    assert (place.position, place.head) == (0, 10), "what was sent may still be acknowledged"
    place.acknowledge(0)
    place.acknowledge(2)
    assert (place.position, place.head) == (10, 10)
    place.send()
    place.send()
    place.acknowledge(11)
    place.go_back()
    assert place.jump(12) == 1, "11 is done"
    assert (place.position, place.head) == (12, 12)
    assert place.jump(15) == 3
    assert (place.position, place.take()) == (15, 15)


def test_the_lag_of_a_cursor_counts_what_is_there() -> None:
    assert Cursor([5, 0]).lag([(0, 7), (3, 4)]) == 3
    cursor = Cursor([0])
    for _ in range(3):
        cursor.places[0].send()
    cursor.places[0].acknowledge(1)
    assert cursor.lag([(0, 5)]) == 4, "1 is finished"
    assert cursor.lag([(2, 5)]) == 3, "it was removed"


def test_a_record_that_cannot_be_read_loses_no_message() -> None:
    assert decode_segments(b"{") == SavedSegments()
    assert decode_cursor(b"[]") is None
    with pytest.raises(StreamRecordError, match=r"the options of \$stream/s cannot be used: .* nothing was changed"):
        decode_definition("s", b"{}")
