"""A broker made of a configuration and never started, so that its core can be asked what it would do."""

from dataclasses import replace
from typing import Final

import click

from mqttlite.cli.configured import made_topics, rules_of
from mqttlite.config import ConfigError, load_config
from mqttlite.config.login_methods import LoginMethod
from mqttlite.config.logins import logins
from mqttlite.config.options import ListenerOptions
from mqttlite.core.broker import Broker
from mqttlite.extensions.explain.explanations import Explanations
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.security.acl_file import AclFileError
from mqttlite.security.password_file import PasswordFileError, load

MEMORY_BYTES: Final = 64 * 1_048_576
"""The core's memory limit where the configuration leaves it to the machine."""


def explanations_of(config_path: str) -> Explanations:
    """Raises `click.UsageError` for files that cannot be used."""
    try:
        config = load_config(config_path)
        limits = config.limits
        if not limits.max_memory_bytes:
            limits = replace(limits, max_memory_bytes=MEMORY_BYTES)
        core = Broker(limits, share_policies={**config.share_policies}, namespaces=NAMESPACES)
        rules = rules_of(config, topics=made_topics(config))
        core.authorize(rules.core)
    except (ConfigError, AclFileError) as error:
        raise click.UsageError("\n".join(error.problems)) from None

    def knows(listener: ListenerOptions, method: LoginMethod, user: str) -> bool:
        if method == "dynamic_security":
            return rules.dynamic is not None and rules.dynamic.state.role_sets_of(user) is not None
        path, _ = config.passwords_of(listener)
        assert path is not None, "the method is there because the file is"
        try:
            return user in load(path)
        except PasswordFileError as error:
            raise click.UsageError(str(error)) from None

    return Explanations(core, lambda user: logins(config, user, knows), lambda: 0.0)
