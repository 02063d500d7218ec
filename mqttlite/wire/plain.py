"""The properties of a PUBLISH that is passed on as it came, looked at where they lie: no object is made of them.

Invariant: what is plain here `decode_properties` takes too, and there is nothing in it to change or to take away.
"""

from typing import Final

NOT_PLAIN: Final = -2
"""Decode them: they are faulty, or name an alias or a subscription, or have text that is not ASCII."""

NO_EXPIRY: Final = -1


def expiry_if_plain(data: bytes, at: int, end: int) -> int:
    """The Message Expiry Interval among the properties in `data[at:end]`, in seconds; `NO_EXPIRY` or `NOT_PLAIN`."""
    expiry = NO_EXPIRY
    seen = 0
    while at < end:
        identifier = data[at]
        at += 1
        if identifier != 0x26:  # a user property, of which there may be many
            if seen >> identifier & 1:
                return NOT_PLAIN
            seen |= 1 << identifier
        if identifier == 0x02:
            if at + 4 > end:
                return NOT_PLAIN
            expiry = int.from_bytes(data[at : at + 4], "big")
            at += 4
        elif identifier == 0x01:
            if at == end or data[at] > 1:
                return NOT_PLAIN
            at += 1
        elif identifier in (0x03, 0x08, 0x09, 0x26):
            strings = 2 if identifier == 0x26 else 1
            while strings:
                if at + 2 > end:
                    return NOT_PLAIN
                start = at + 2
                at = start + (data[at] << 8 | data[at + 1])
                if at > end:
                    return NOT_PLAIN
                if identifier != 0x09 and not _is_plain_text(data[start:at], identifier == 0x08):
                    return NOT_PLAIN
                strings -= 1
        else:
            return NOT_PLAIN
    return expiry


def _is_plain_text(text: bytes, is_topic: bool) -> bool:
    """Whether it is ASCII without U+0000, and a topic name if it is to be one."""
    if not text.isascii() or 0 in text:
        return False
    return not is_topic or (len(text) > 0 and 0x2B not in text and 0x23 not in text)
