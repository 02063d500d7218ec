"""What became of a request: the response of the endpoint in what counts of it, or why there is none."""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

TIMED_OUT: Final = "timeout"
NOT_REACHED: Final = "failed"
DENIED: Final = "denied"
RESULTS: Final = ("2xx", "3xx", "4xx", "5xx", TIMED_OUT, NOT_REACHED, DENIED)
"""How requests are counted: by the class of their status, or why there was no response."""

GONE: Final = 410
MAY_RETRY_LATER: Final = frozenset({429, 503})
"""The statuses with which `Retry-After` counts."""

MAX_RETRY_AFTER_S: Final = 3_600.0
"""An endpoint that says more is asked after as long: an error in a date must not silence it for ever."""


@dataclass(frozen=True, slots=True)
class Result:
    """`kind` is one of `RESULTS`, and `status` 0 without a response. `detail` says it in words, and nothing of the
    response's body: that is not for those who chose the URL."""

    kind: str
    status: int
    detail: str
    retry_after_s: float = 0.0

    @property
    def is_success(self) -> bool:
        """Whether the endpoint has the message."""
        return self.kind == "2xx"


def response(status: int, retry_after: str | None, now: datetime | None = None) -> Result:
    """The result of a response with a status, and with that header if it has it."""
    kind = f"{status // 100}xx"
    if kind not in RESULTS:  # 1xx does not end a request, and there are no others
        return Result(NOT_REACHED, status, f"the status {status}, which is none of HTTP")
    seconds = 0.0
    if retry_after is not None and status in MAY_RETRY_LATER:
        seconds = min(parse_retry_after(retry_after, now or datetime.now(UTC)), MAX_RETRY_AFTER_S)
    return Result(kind, status, f"HTTP {status}", seconds)


def parse_retry_after(text: str, now: datetime) -> float:
    """Seconds to wait, from a number of them or a date (RFC 9110 §10.2.3); 0.0 for what is neither, or past."""
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
