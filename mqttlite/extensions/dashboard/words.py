"""Formats numbers, times and payloads for people. `assets/words.js` does the same in the browser.

Invariant: whatever a client sent becomes text that can be shown.
"""

import json
from datetime import UTC, datetime
from math import inf
from typing import Final

BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")

HEX_BYTES: Final = 4_096
"""Of a payload that is shown in hexadecimal: 256 lines."""

SHOWN_BYTES: Final = 65_536
"""Of a payload that is shown: more is no page that anybody reads."""

JSON_CHARACTERS: Final = 4 * SHOWN_BYTES
"""Of JSON with its indents, which may be some thousand times as long as the payload."""

_JSON: Final = json.JSONEncoder(indent=2, ensure_ascii=False)


def number(value: float | None) -> str:
    """Such as `12,345`, and below a hundred `3.4`; `–` where nothing is known."""
    if value is None or value == inf:
        return "–"
    if isinstance(value, int) or abs(value) >= 100 or value == int(value):
        return f"{round(value):,}"
    return f"{value:.1f}"


def percent(value: float | None) -> str:
    """A part of one, such as `12 %`."""
    return "–" if value is None else f"{100 * value:.0f} %"


def size(value: float | None) -> str:
    """Bytes, such as `1.5 MiB`."""
    if value is None:
        return "–"
    unit = 0
    while value >= 1_024 and unit < len(BINARY) - 1:
        value /= 1_024
        unit += 1
    return f"{round(value)} B" if unit == 0 else f"{value:.1f} {BINARY[unit]}"


def seconds(value: float | None) -> str:
    """A time span, such as `3.2 ms`, `41 s`, `2 h 5 min` or `3 d 4 h`."""
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1_000:.1f} ms"
    if value < 60:
        return f"{value:.0f} s"
    minutes, hours, days = int(value // 60), int(value // 3_600), int(value // 86_400)
    if hours == 0:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if days == 0 else f"{days} d {hours % 24} h"


def when(value: datetime | float | str | None) -> str:
    """A moment in UTC, to the second; a text is one of ISO 8601."""
    if value is None:
        return "–"
    if isinstance(value, str):
        value = datetime.fromisoformat(value).astimezone(UTC)
    at = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def as_text(payload: bytes) -> str:
    """The payload as text; what is no UTF-8 is replaced."""
    return payload[:SHOWN_BYTES].decode(errors="replace")


def as_json(payload: bytes) -> str | None:
    """The payload as indented JSON; None if it is none, or nested so that it would be mostly indents."""
    if len(payload) > SHOWN_BYTES:
        return None
    parts: list[str] = []
    characters = 0
    try:
        for part in _JSON.iterencode(json.loads(payload)):
            characters += len(part)
            if characters > JSON_CHARACTERS:
                return None
            parts.append(part)
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def as_hex(payload: bytes) -> str:
    """The payload as lines of sixteen bytes."""
    lines = []
    for start in range(0, min(len(payload), HEX_BYTES), 16):
        row = payload[start : start + 16]
        shown = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{start:06x}  {row.hex(' '):<47}  {shown}")
    if len(payload) > HEX_BYTES:
        lines.append(f"… {len(payload) - HEX_BYTES:,} bytes more")
    return "\n".join(lines)


def is_text(payload: bytes) -> bool:
    """Whether a payload is text that can be shown as it is."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return False
    return all(each.isprintable() or each in "\t\r\n" for each in text[:SHOWN_BYTES])


def preview(payload: bytes) -> str:
    """A payload in one line."""
    return preview_of(payload, len(payload))


def preview_of(beginning: bytes, payload_bytes: int, most: int = 80) -> str:
    """The same of a payload of which only the beginning is at hand."""
    if not payload_bytes:
        return "(empty)"
    text = _text_of(beginning[: 4 * most], is_cut=payload_bytes > 4 * most)
    if text is None:
        return f"{size(payload_bytes)} of binary data"
    line = " ".join(text.split())
    is_whole = len(line) <= most and payload_bytes <= 4 * most
    return line if is_whole else f"{line[:most]}…"


def _text_of(beginning: bytes, *, is_cut: bool) -> str | None:
    """The text that a payload begins with, which may be cut inside a character; None if it is no text."""
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(beginning) - 3:
            return None
        text = beginning[: error.start].decode()
    return text if is_text(text.encode()) else None
