"""What may be trimmed: only what two copies have."""

import pytest

from mqttlite.extensions.cluster.trim import trim_before


@pytest.mark.parametrize(
    ("durable", "snapshot", "size", "before"),
    [
        ([], 0, 0, 0),
        ([100], 0, 99, 0),
        ([100, 80], 0, 10, 81),
        ([100, 80, 10], 0, 49, 11),
        ([100, 80, 10], 0, 50, 81),
        ([100], 60, 49, 61),
        ([100], 60, 50, 61),
        ([100, 10], 60, 49, 11),
        ([100, 10], 60, 50, 61),
    ],
    ids=[
        "nobody",
        "one copy",
        "two machines",
        "a third is behind",
        "a third is behind and the log fills",
        "a snapshot counts",
        "a snapshot counts while the log fills",
        "a machine behind a snapshot is waited for",
        "and not while the log fills",
    ],
)
def test_removable_messages_are_in_two_copies(durable: list[int], snapshot: int, size: int, before: int) -> None:
    assert trim_before(durable, snapshot, size, 100) == before
