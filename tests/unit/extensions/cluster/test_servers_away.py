"""Which servers the leader of a stream lacks, by what it says about them."""

from typing import Any

import msgspec
import pytest

pytest.importorskip("nats")

from mqttlite.engine.nats.streams import AWAY_NS, StreamInfo


@pytest.mark.parametrize(
    ("said", "is_away"),
    [
        ({"current": True, "active": 6_000_000}, False),
        ({"current": False, "active": 6_000_000, "lag": 9}, False),
        ({"current": True, "active": AWAY_NS + 1}, True),
        ({"current": False, "offline": True, "active": 6_000_000}, True),
        ({"current": False, "active": 0, "lag": 3}, True),
    ],
    ids=["heard of", "behind", "silent", "offline", "never heard of by a new leader"],
)
def test_servers_that_a_leader_does_not_hear_are_away(said: dict[str, Any], is_away: bool) -> None:
    cluster = {"leader": "n0", "replicas": [{"name": "n1", **said}, {"name": "n2", "current": True, "active": 1}]}
    info = msgspec.convert({"config": {}, "state": {}, "cluster": cluster}, StreamInfo)
    assert info.away() == (("n1",) if is_away else ())
