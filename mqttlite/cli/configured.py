"""The rules of a configuration, as a broker with it would have them: of files, of policies and of dynamic security.

Invariant: the answers are the broker's, because the code is the same.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from mqttlite.catalogue.entries import Lookup, NoSchemas
from mqttlite.config import Config, ConfigError
from mqttlite.config.checks import lets_bridges
from mqttlite.config.data_dir import default_data_dir
from mqttlite.core.authorizer import Authorizer
from mqttlite.extensions.built_in import ALWAYS_ON, BUILT_IN, resolve, turned_on
from mqttlite.extensions.manifest import Manifest
from mqttlite.security.acl_file import load
from mqttlite.security.both_rules import BothRules
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.security.dynamic_security import DynamicSecurityError, path_of
from mqttlite.security.dynamic_security.document import load as load_dynamic_security
from mqttlite.security.dynamic_security.model import State
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.rules import Rules
from mqttlite.security.topic_file import FILE_NAME as TOPIC_FILE_NAME
from mqttlite.security.topic_file import load as load_topics
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.security.topic_records import TopicFileError, policies_of


class ConfiguredRules:
    """`core` is what the core asks; `files` and `dynamic` are the parts, as far as there are any."""

    def __init__(
        self,
        files: Rules | None,
        dynamic: DynamicRules | None,
        publishers: frozenset[str] = frozenset(),
        *,
        bridges: bool = False,
        extensions: Iterable[Manifest] = ALWAYS_ON,
    ) -> None:
        self.files: Final = files
        self.dynamic: Final = dynamic
        both: Authorizer | None = files
        if dynamic is not None:
            both = dynamic if files is None else BothRules(dynamic, files)
        self.core: Final = built_in_rules(publishers, both, bridges=bridges, extensions=extensions)


def rules_of(config: Config, acl_file: str | None = None, topics: Sequence[TopicPolicyOptions] = ()) -> ConfiguredRules:
    """With another ACL file where one is named, and the policies of `made_topics`. Raises `AclFileError` and
    `ConfigError`."""
    path = config.acl_file if acl_file is None else acl_file
    files: Rules | None = None
    policies = (*config.topic_policies, *topics)
    if path is not None or policies:
        files = Rules(None if path is None else load(path), policies, config.groups)
    return ConfiguredRules(
        *(files, _dynamic(config), frozenset(config.sys.publishers)),
        bridges=lets_bridges(config),
        extensions=turned_on(config),
    )


def made_topics(config: Config) -> list[TopicPolicyOptions]:
    """The policies of the topics made over HTTP, in the data directory. Raises `ConfigError`."""
    try:
        return policies_of(load_topics(Path(directory_of(config)) / TOPIC_FILE_NAME))
    except TopicFileError as error:
        raise ConfigError(f"data_dir: {error}") from None


def made_schemas(data_dir: str) -> Lookup:
    """Read the schemas in a data directory. Raises `ConfigError`."""
    for each in BUILT_IN.values():
        if each.lookup:
            found: Lookup = resolve(each.lookup)(Path(data_dir))
            return found
    return NoSchemas()


def directory_of(config: Config) -> str:
    return config.data_dir if config.data_dir is not None else str(default_data_dir(os.environ))


def _dynamic(config: Config) -> DynamicRules | None:
    if config.dynamic_security is None:
        return None
    path = path_of(config.dynamic_security, directory_of(config))
    if path is None:
        raise ConfigError("dynamic_security.file is missing, and so is data_dir: name a file, or a data directory")
    try:
        return DynamicRules(load_dynamic_security(path) if path.exists() else State())
    except DynamicSecurityError as error:
        raise ConfigError(f"dynamic_security.file: {error}") from None
