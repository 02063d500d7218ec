"""What a check of a configuration finds at the NATS of nodes. Nothing is changed there.

A node starts without NATS, and goes on when it comes. So nothing here stops a start.
"""

from collections.abc import Iterator

from mqttlite.config import Config
from mqttlite.engine.addresses import shown
from mqttlite.engine.nats.fitness import (
    OLDEST_TEXT,
    Greeting,
    check_account,
    check_together,
    greetings_of,
    is_old,
)
from mqttlite.engine.port import EngineUnavailable, EngineUnfit
from mqttlite.extensions.nodes.connect import nats_options
from mqttlite.extensions.nodes.nats_carrier import LEAST_PAYLOAD_BYTES


async def look(config: Config) -> list[str]:
    """Implements `Manifest.look`."""
    options = config.nodes
    assert options is not None, "the section is there"
    nats = nats_options(options, options.name)
    sentences: list[str] = []
    try:
        found = await greetings_of(options.servers)
        for url, greeting in zip(options.servers, found, strict=True):
            if greeting is None:
                sentences.append(f"nodes.servers: {shown(url)} does not answer now")
        greetings = [each for each in found if each is not None]
        sentences += _weak(greetings)
        check_together(greetings)
        if greetings and all(each.jetstream for each in greetings):
            await check_account(nats)
    except (EngineUnfit, EngineUnavailable) as error:
        sentences.append(f"nodes: {error}")
    return sentences


def _weak(greetings: list[Greeting]) -> Iterator[str]:
    for each in greetings:
        if is_old(each):
            yield f"nodes: NATS server {each.server_name} is {each.version}, and the oldest tested is {OLDEST_TEXT}"
        if each.max_payload < LEAST_PAYLOAD_BYTES:
            yield (
                f"nodes: NATS server {each.server_name} takes messages of up to {each.max_payload} bytes, so nodes do "
                f"not use it: set max_payload to {LEAST_PAYLOAD_BYTES} or more"
            )
        if not each.jetstream:
            yield (
                f"nodes: NATS server {each.server_name} runs without JetStream, so changes of users, rules, bans and "
                "others are refused at run time: start it with -js"
            )
        if len(greetings) > 1 and not each.cluster:
            yield (
                f"nodes: NATS server {each.server_name} is alone, and nodes there do not hear those at the others: add "
                "a cluster block with routes to each configuration"
            )
