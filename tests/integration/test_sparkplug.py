"""A Sparkplug aware broker: births are kept, and deaths have the time at which they come."""

import time

import pytest

from mqttlite import Broker, Client, Config, ListenerOptions, Will

pytestmark = pytest.mark.slow

BIRTH = b"\x08\x05\x12\x04\x0a\x02ab"


async def test_births_are_certificates_and_deaths_have_a_time() -> None:
    config = Config(listeners=(ListenerOptions(port=0),), sparkplug=True)
    async with Broker(config) as broker:
        death = Will("spBv1.0/g/NDEATH/n", b"\x08\x05\x18\x07", qos=1)
        async with Client("127.0.0.1", broker.port, client_id="app") as app:
            await app.subscribe("spBv1.0/#", qos=1)
            node = Client("127.0.0.1", broker.port, client_id="n", will=death)
            async with node:
                await node.publish("spBv1.0/g/NBIRTH/n", BIRTH)
                await node.publish("spBv1.0/g/DBIRTH/n/d", BIRTH + b"\x18\x01", qos=1)
                assert [(await anext(app.messages)).payload for _ in range(2)] == [BIRTH, BIRTH + b"\x18\x01"]
                await app.subscribe("$sparkplug/certificates/#", qos=1)
                found = {(each.topic, each.payload, each.retain) for each in [await anext(app.messages) for _ in "nd"]}
                assert found == {
                    ("$sparkplug/certificates/spBv1.0/g/NBIRTH/n", BIRTH, True),
                    ("$sparkplug/certificates/spBv1.0/g/DBIRTH/n/d", BIRTH + b"\x18\x01", True),
                }
                before = time.time()
                broker.admin.kick("n")
                message = await anext(app.messages)
            assert message.topic == "spBv1.0/g/NDEATH/n"
            assert message.payload.endswith(b"\x18\x07")
            assert before - 5 < _milliseconds(message.payload) / 1_000 < time.time() + 5


def _milliseconds(payload: bytes) -> int:
    """The timestamp in front of a payload."""
    assert payload[0] == 8
    value = 0
    for number, byte in enumerate(payload[1:]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            break
    return value
