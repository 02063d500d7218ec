"""Whether this machine could serve if it had to: a machine that follows looks again and again.

Invariant: nothing is changed, and no client can connect meanwhile.
"""

import asyncio

from mqttlite.config import Config
from mqttlite.config.checks import file_problems
from mqttlite.net.endpoints import cannot_listen, try_port


async def problem_of(config: Config) -> str:
    """Why a broker with this configuration would not start here now, in a sentence; empty if it would."""
    return await asyncio.to_thread(_problem_of, config)


def _problem_of(config: Config) -> str:
    found = [str(each) for each in file_problems(config)]
    named = zip(config.listener_names(), config.listeners, strict=True)
    listeners = [(each.host, each.port, each.reuse_port, name) for name, each in named if each.path is None]
    if config.http is not None:
        listeners.append((config.http.host, config.http.port, False, "http"))
    for host, port, reuses, name in listeners:
        try:
            try_port(host, port, reuses)
        except OSError as error:
            found.append(str(cannot_listen(host, port, name, error)))
    return "; ".join(found)
