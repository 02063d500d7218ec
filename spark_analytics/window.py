"""The time that is asked for: what `--since` and `--until` may say. Pure but for the `now` it is handed.

Invariant: the result is in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?) *(s|sec|second|min|minute|h|hour|d|day|w|week)s?( ago)?", re.IGNORECASE)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_moment(text: str, now: datetime) -> datetime:
    """`2026-11-21`, `2026-11-21T11:00` (UTC unless it says otherwise) or `2 days`, before `now`.

    Raises ValueError that says what is understood.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago:
            return now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2][0].lower()])
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no time: give one such as 2026-11-21, 2026-11-21T11:00 (UTC), or how long ago, such as"
            " '90 min', '36 h' or '2 days'"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
