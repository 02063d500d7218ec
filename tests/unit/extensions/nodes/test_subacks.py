"""Which nodes a SUBACK still waits for."""

from types import SimpleNamespace
from typing import cast

from mqttlite.extensions.nodes.news import News
from mqttlite.extensions.nodes.peer import Peer
from mqttlite.extensions.nodes.subacks import lacks, told_now


def test_a_node_that_has_connected_again_lacks_nothing_of_its_former_connection() -> None:
    peer = SimpleNamespace(is_connected=True, connects=1, news=News())
    peers = cast("dict[str, Peer]", {"a": peer, "b": SimpleNamespace(is_connected=False)})
    peer.news.put([(b"x", 0), (b"y", 1)])
    counts = told_now(peers)
    assert lacks(peers, counts) == ["a"]
    peer.news.taken = 1
    assert lacks(peers, counts) == ["a"]
    peer.connects = 2
    assert lacks(peers, counts) == [], "it was told all at its beginning"
    peer.connects, peer.news.taken = 1, 2
    assert lacks(peers, counts) == []
    peer.news.taken, peer.is_connected = 0, False
    assert lacks(peers, counts) == []
