"""A banned client is refused at CONNECT with a reason, in each version; nothing is asked while there are none."""

import pytest

from mqttlite.core.reasons import CloseReason
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connack
from tests.support.core_driver import World


@pytest.mark.parametrize(("version", "code"), [(V5, 0x8A), (V311, 5)])
def test_a_banned_client_is_refused_and_told_why(version: int, code: int) -> None:
    world = World()
    asked: list[tuple[str, str | None, str]] = []

    def ban_of(client_id: str, username: str | None, address: str) -> str:
        asked.append((client_id, username, address))
        return "the client is banned" if client_id == "c" else ""

    world.broker.ban_by(ban_of)
    client = world.open(version)
    client.connection.address = "192.0.2.7:5"
    connack = client.connect("c", username="u", password=b"p")
    assert isinstance(connack, Connack)
    assert connack.reason_code == code
    assert client.connection.close_reason == CloseReason.ADMINISTRATIVE
    assert client.connection.close_detail == "the client is banned"
    world.connect("d", version)
    assert asked == [("c", "u", "192.0.2.7:5"), ("d", None, "")]
    world.broker.ban_by(None)
    world.connect("c", version)
    assert len(asked) == 2


def test_the_program_itself_is_never_banned() -> None:
    world = World()
    world.broker.ban_by(lambda client_id, username, address: "nobody may")
    client = world.open(is_trusted=True)
    connack = client.connect("program")
    assert connack is not None
    assert connack.reason_code == 0
