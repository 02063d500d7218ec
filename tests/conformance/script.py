"""A row of the table: a statement of the standard, one sentence, and a script of what goes over the wire.

The script names links by letters, a line for each step; blank lines and what follows `--` are skipped:

    hello a b                 a and b connect, with a clean start and their letter as client identifier
    stay a                    the same, but the session will outlive the connection by 100 s
    back a                    a connects again and finds that session; `back a new` finds none
    a> 82 ~ 0001 {} "t" 01    a sends these bytes (on a new link where it has none)
    a>| 82                    a sends the beginning of a packet
    a< 90 ~ 0001 {} 01        the next packet that a gets
    a<* 30 ... ; 30 ...       the next packets that a gets, in any order
    a> ... => ...             the two in one line
    a.                        a got nothing but that
    a! 82                     the broker closed a; a 5.0 client is told 0x82 first. `a!` says nothing before
    a-                        a drops its link without a word
    + 30                      30 seconds pass

Bytes are hex digits, 'text' and "text behind its two-byte length"; `~` is the length of what follows, `{…}` a property
block with its length, which a 3.1.1 packet does not have (there it must be empty), `VV` the protocol level,
`'x' * 9` nine times that, and `;` stands between packets. A packet that is got may be described instead:

    connack 0 00 server_keep_alive=30      session present, code, and properties among others (`=*`: whatever it is)
    disconnect 8e
"""

import re
from dataclasses import dataclass
from typing import Final

from mqttlite.core.connect.capabilities import EVERYTHING, Capabilities
from mqttlite.core.limits import Limits
from mqttlite.wire.constants import V5, V31, V311
from mqttlite.wire.decode import decode
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Connack, Disconnect, Packet
from mqttlite.wire.primitives import encode_binary, encode_varint
from tests.conformance.statements import name, numbers

EVERY: Final = (V311, V5)
SINCE_3_1: Final = (V31, V311, V5)
ONLY_3: Final = (V311,)
ONLY_5: Final = (V5,)

LIMITS: Final = Limits(receive_maximum=4, max_packet_bytes=4_096, topic_alias_maximum=3)

_TOKEN: Final = re.compile(r"""\s*(?:(~)|(\{)|(\})|(VV)|"([^"]*)"|'([^']*)'|\*\s*(\d+)|((?:[0-9a-fA-F]{2})+))""")


@dataclass(frozen=True)
class Row:
    statement: str
    """Its number in 5.0, which stands for its counterpart in 3.1.1 too, or that in 3.1.1; § where the text has none."""
    sentence: str
    script: str
    versions: tuple[int, ...] = EVERY
    limits: Limits = LIMITS
    capabilities: Capabilities = EVERYTHING
    gated: bool = False
    """Whether clients must bring the password `p`, or choose the authentication method `M` (see `worlds`)."""

    def label(self, version: int) -> str:
        """What it is about, in the numbers of that version."""
        held = [name(version, number) for number in numbers(self.statement, version)]
        return " ".join(held) or self.statement

    @property
    def waits(self) -> bool:
        """Whether time passes in it."""
        return re.search(r"^\s*\+", self.script, re.MULTILINE) is not None


def on_the_wire(text: str, version: int) -> bytes:
    """The bytes of that notation."""
    frames = b""
    for part in text.split(";"):
        packed, rest = _pack(part, version)
        assert not rest.strip(), f"not bytes: {rest}"
        frames += packed
    return frames


def _pack(text: str, version: int) -> tuple[bytes, str]:
    out = b""
    while match := _TOKEN.match(text):
        text = text[match.end() :]
        tilde, opening, closing, level, string, raw, times, digits = match.groups()
        if tilde:
            body, text = _pack(text, version)
            return out + encode_varint(len(body)) + body, text
        if opening:
            block, text = _pack(text, version)
            assert version == V5 or not block, "only 5.0 has properties"
            out += encode_varint(len(block)) + block if version == V5 else b""
        elif closing:
            return out, text
        elif level:
            out += bytes((version,))
        elif times:
            out = out[:-1] + out[-1:] * int(times)
        elif digits:
            out += bytes.fromhex(digits)
        else:
            out += encode_binary(string.encode()) if string is not None else raw.encode()
    return out, text


def cut(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames, and what is left."""
    frames = []
    while size := packet_size(data, 0):
        if size > len(data):
            break
        frames.append(data[:size])
        data = data[size:]
    return frames, data


def in_words(frame: bytes, version: int) -> Packet:
    body = 2
    while frame[body - 1] > 127:
        body += 1
    return decode(frame[0], frame[body:], version)


def check(frame: bytes, wanted: str, version: int) -> None:
    """Hold a frame against its notation or description."""
    word, *rest = wanted.split()
    if word == "connack":
        packet = in_words(frame, version)
        assert isinstance(packet, Connack), f"{packet} is no CONNACK"
        present = bool(int(rest[0])) and version != V31
        assert (packet.session_present, packet.reason_code) == (present, int(rest[1], 16)), packet
        for pair in rest[2:]:
            name, value = pair.split("=")
            found = getattr(packet.properties, name)
            assert found is not None if value == "*" else str(found) == value, packet
    elif word == "disconnect":
        packet = in_words(frame, version)
        assert isinstance(packet, Disconnect), f"{packet} is no DISCONNECT"
        assert f"{packet.reason_code:02x}" == rest[0].lower(), packet
    else:
        expected = on_the_wire(wanted, version)
        assert frame == expected, f"got {in_words(frame, version)}, wanted {in_words(expected, version)}"


def hello(link: str, version: int, *, clean: bool = True, stay: bool = False) -> str:
    """A CONNECT as the three short words send it."""
    if version == V5:
        block = "{ 11 00000064 }" if stay else "{}"
        return f'10 ~ "MQTT" 05 {"02" if clean else "00"} 0000 {block} "{link}"'
    name = "MQIsdp" if version == V31 else "MQTT"
    return f'10 ~ "{name}" VV {"00" if stay else "02"} 0000 "{link}"'
