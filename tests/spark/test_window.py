"""What `--since` and `--until` understand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spark_analytics.window import parse_moment

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20T10:30", datetime(2026, 11, 20, 10, 30, tzinfo=UTC)),
        ("2026-11-20T10:30:00+02:00", datetime(2026, 11, 20, 8, 30, tzinfo=UTC)),
        ("2026-11-20 10:30:00Z", datetime(2026, 11, 20, 10, 30, tzinfo=UTC)),
        ("2 days", NOW - timedelta(days=2)),
        ("1.5h", NOW - timedelta(minutes=90)),
        ("90 min ago", NOW - timedelta(minutes=90)),
        ("1 Week", NOW - timedelta(weeks=1)),
    ],
)
def test_a_time_or_how_long_ago(text: str, moment: datetime) -> None:
    assert parse_moment(text, NOW) == moment
    assert parse_moment(text, NOW).utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ["", "yesterday", "2 fortnights", "-2 days", "2026-13-01", "9999999999 weeks"])
def test_anything_else_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: give one such as 2026-11-21"):
        parse_moment(text, NOW)
