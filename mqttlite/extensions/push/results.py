"""The result of a request: the relevant part of the response, or why there is none."""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

TIMED_OUT: Final = "timeout"
NOT_REACHED: Final = "failed"
DENIED: Final = "denied"
RESULTS: Final = ("2xx", "3xx", "4xx", "5xx", TIMED_OUT, NOT_REACHED, DENIED)
"""The kinds of results for metrics: the class of the status, or why there was no response."""

GONE: Final = 410
MAY_RETRY_LATER: Final = frozenset({429, 503})
"""The statuses for which `Retry-After` is respected."""

MAX_RETRY_AFTER_S: Final = 3_600.0
"""The longest respected `Retry-After`: a wrong date must not stop the push for ever."""


@dataclass(frozen=True, slots=True)
class Result:
    """`kind` is one of `RESULTS`; `status` is 0 without a response. `detail` is a text that never contains the
    response's body, because a client that chose the URL must not read it."""

    kind: str
    status: int
    detail: str
    retry_after_s: float = 0.0

    @property
    def is_success(self) -> bool:
        """Whether the endpoint accepted the message."""
        return self.kind == "2xx"


def response(status: int, retry_after: str | None, now: datetime | None = None) -> Result:
    """The result for a response with a status and an optional `Retry-After`."""
    kind = f"{status // 100}xx"
    if kind not in RESULTS:  # 1xx does not end a request; other statuses do not exist
        return Result(NOT_REACHED, status, f"the status {status}, which is none of HTTP")
    seconds = 0.0
    if retry_after is not None and status in MAY_RETRY_LATER:
        seconds = min(parse_retry_after(retry_after, now or datetime.now(UTC)), MAX_RETRY_AFTER_S)
    return Result(kind, status, f"HTTP {status}", seconds)


def parse_retry_after(text: str, now: datetime) -> float:
    """The seconds to wait, from a number or a date (RFC 9110 §10.2.3); 0.0 for an invalid or past value."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text[:40])
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())
