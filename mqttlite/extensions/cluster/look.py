"""What a check of a configuration finds at the engine. Nothing is changed there."""

from mqttlite.config import Config, ConfigError
from mqttlite.engine.addresses import shown
from mqttlite.engine.nats.fitness import check, check_account, check_addresses, greetings_of
from mqttlite.engine.port import EngineUnavailable, EngineUnfit
from mqttlite.extensions.cluster.connect import nats_options
from mqttlite.extensions.cluster.engine_child import find_server
from mqttlite.security.one_line import one_line


async def look(config: Config) -> list[str]:
    """Implements `Manifest.look`."""
    options = config.cluster
    assert options is not None, "the section is there"
    own = "" if options.engine is None else options.engine.address
    sentences: list[str] = []
    try:
        if own:
            find_server()
        check_addresses(options.servers)
        nats = nats_options(options)
        greetings = dict(zip(options.servers, await greetings_of(options.servers), strict=True))
        silent = [url for url, greeting in greetings.items() if greeting is None]
        sentences += [f"cluster.servers: {shown(url)} does not answer now" for url in silent if url != own]
        if len(silent) < len(greetings):
            await check(nats)
            await check_account(nats)
    except EngineUnfit as error:
        raise ConfigError(f"cluster: {one_line(str(error))}") from None  # it may quote a server
    except EngineUnavailable as error:
        sentences.append(f"cluster: {error}")
    return sentences
