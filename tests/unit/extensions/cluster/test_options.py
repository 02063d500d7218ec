"""The section `[cluster]`: what is refused, and with which sentence."""

import pytest

from mqttlite.extensions.cluster.options import ClusterOptions, EngineOptions

SERVERS = ("nats://127.0.0.1:4222",)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"servers": ()}, "servers has 0 addresses: name 1 to 16"),
        ({"servers": ("127.0.0.1:4222",)}, "servers has '127.0.0.1:4222': write it like"),
        ({"node": "a b"}, "node is 'a b': use 1 to 64 letters"),
        ({"name": ""}, "name is empty: leave it out, or name the cluster"),
        ({"password": "x"}, "password is set without the name that it belongs to"),
        ({"log_bytes": 67_108_863}, "log_bytes is 67108863: at least 67108864 are needed"),
        ({"snapshot_bytes": 67_108_863}, "snapshot_bytes is 67108863: at least 67108864 are needed"),
        ({"engine": EngineOptions(address="nats://x:4222", secret="0123456789abcdef")}, "which is none of servers"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ClusterOptions(**{"servers": SERVERS, **options})  # type: ignore[arg-type]


def test_a_small_disk_is_enough_for_the_least_sizes() -> None:
    options = ClusterOptions(servers=SERVERS, log_bytes=67_108_864, snapshot_bytes=67_108_864)
    assert options.log_bytes + options.snapshot_bytes == 134_217_728
