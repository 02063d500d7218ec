"""The rates of a user hold at all nodes together."""

import pytest

from tests.integration.nodes.test_nodes import Fleet, air, client_of, connected, fleet, nodes_of
from tests.support.device import until
from tests.support.inside import core_of

__all__ = ("air", "fleet")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

QUOTAS = {"user_messages_per_s": 1.0}
LISTENERS = [{"port": 0}, {"name": "devices", "port": 0, "quotas": {"user_bytes_per_s": 100.0}}]


async def test_a_user_that_publishes_much_at_one_node_is_held_at_another(fleet: Fleet) -> None:
    brokers = [await fleet.start(name, quotas=QUOTAS) for name in "ab"]
    await connected(*brokers)
    a, b = brokers
    async with (
        client_of(a, username="u", password="p") as much,
        client_of(b, "quiet", username="u", password="p") as quiet,
        client_of(b, "other", username="v", password="p") as other,
    ):
        for number in range(20):
            await much.publish("t", str(number), qos=0)
        rate = nodes_of(b).spending._rates["user_ "]
        core = core_of(b)
        await until(lambda: not rate.of("u", core.effects.now).have(0, 0, core.effects.now))
        assert rate.of("v", core.effects.now).have(1, 0, core.effects.now)
        await quiet.publish("t", "one", qos=1)
        await other.publish("t", "one", qos=1)
        held = {each.client_id: each.throttle for each in core.connections.values()}
        assert (held["quiet"].times, held["other"].times) == (1, 0)


async def test_a_listener_has_the_rates_of_the_one_with_its_name(fleet: Fleet) -> None:
    a = await fleet.start("a", listeners=LISTENERS)
    b = await fleet.start("b", listeners=LISTENERS[::-1])
    assert sorted(nodes_of(a).spending._rates) == sorted(nodes_of(b).spending._rates) == ["user_ devices"]
