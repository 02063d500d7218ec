"""What is written is read back the same, in every version; where the stream is cut changes nothing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.wire.constants import MAX_REMAINING_LENGTH
from mqttlite.wire.decode import connect_version
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import PeerError
from mqttlite.wire.framer import Framer, packet_size
from mqttlite.wire.packets import Connect, Packet
from mqttlite.wire.primitives import Cursor, encode_utf8, encode_varint
from tests.support.examples import examples
from tests.support.packets import CHARACTERS, KINDS, VERSIONS, decode_frame, kinds, raw
from tests.unit.wire.good import GOOD

FRAMES = [raw(text) for _version, _what, text, _packet in GOOD if len(raw(text)) < 300]

FAULTS = [b"", raw("30 8000"), raw("30 ffffffff"), raw("30 ff7f")]
"""What may follow good packets: nothing, a padded length, an endless one, a packet that is too large."""


@pytest.mark.parametrize(("version", "kind"), [(version, kind) for version in VERSIONS for kind in kinds(version)])
def test_a_packet_is_read_as_it_was_written(version: int, kind: str) -> None:
    @examples(25)
    @given(KINDS[kind](version))
    def check(packet: Packet) -> None:
        frame = encode(packet, version)
        decoded = decode_frame(frame, version)
        assert decoded == packet
        assert hash(decoded) == hash(packet)
        assert encode(decoded, version) == frame
        if isinstance(packet, Connect):
            ((_first, body),) = Framer(len(frame)).split(frame)
            assert connect_version(body) == version

    check()


def outcome(framer: Framer, chunks: list[bytes]) -> list[object]:
    """The packets of the stream, and the name of the error that ends it."""
    seen: list[object] = []
    try:
        for chunk in chunks:
            seen.extend(framer.split(chunk))
            assert framer.kept_bytes < framer.max_packet_size
    except PeerError as error:
        seen.append(type(error).__name__)
    return seen


@examples(100)
@given(st.data())
def test_where_the_stream_is_cut_changes_nothing(data: st.DataObject) -> None:
    frames = data.draw(st.lists(st.sampled_from(FRAMES), max_size=5))
    stream = b"".join(frames) + data.draw(st.sampled_from(FAULTS))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12))), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(cuts)]

    whole = outcome(Framer(300), [stream])
    assert outcome(Framer(300), chunks) == whole
    assert outcome(Framer(300), [stream[at : at + 1] for at in range(len(stream))]) == whole
    assert len(whole) == len(frames) + (stream != b"".join(frames))


@examples(100)
@given(st.integers(0, MAX_REMAINING_LENGTH))
def test_a_variable_byte_integer_is_read_as_it_was_written(value: int) -> None:
    written = encode_varint(value)
    assert Cursor(written).varint() == value
    assert packet_size(b"\x30" + written, 0) == 1 + len(written) + value


@examples(100)
@given(st.text(CHARACTERS + "\0\ud800\udfff", max_size=8))
def test_a_text_is_read_as_it_was_written_or_does_not_fit(text: str) -> None:
    allowed = set(text) <= set(CHARACTERS)
    try:
        assert Cursor(encode_utf8(text)).utf8() == text
        assert allowed
    except ValueError:
        assert not allowed
