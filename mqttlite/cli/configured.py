"""The rules of a configuration, as a broker with it would have them: of files, of policies and of dynamic security.

Invariant: what is asked here answers as the broker does, for it is the same code.
"""

import os
from typing import Final

from mqttlite.config import Config, ConfigError
from mqttlite.config.data_dir import default_data_dir
from mqttlite.core.authorizer import Authorizer, DefaultRules
from mqttlite.security.acl_file import load
from mqttlite.security.both_rules import BothRules
from mqttlite.security.dynamic_security import DynamicSecurityError, path_of
from mqttlite.security.dynamic_security.document import load as load_dynamic_security
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.rules import Rules


class ConfiguredRules:
    """`core` is what the core asks; `files` and `dynamic` are the parts, as far as there are any."""

    def __init__(
        self, files: Rules | None, dynamic: DynamicRules | None, publishers: frozenset[str] = frozenset()
    ) -> None:
        self.files: Final = files
        self.dynamic: Final = dynamic
        both: Authorizer | None = files
        if dynamic is not None:
            both = dynamic if files is None else BothRules(dynamic, files)
        self.core: Final = DefaultRules(publishers, both)


def rules_of(config: Config, acl_file: str | None = None) -> ConfiguredRules:
    """With another ACL file where one is named. Raises `AclFileError` and `ConfigError`."""
    path = config.acl_file if acl_file is None else acl_file
    files: Rules | None = None
    if path is not None or config.topic_policies:
        files = Rules(None if path is None else load(path), config.topic_policies, config.groups)
    return ConfiguredRules(files, _dynamic(config), frozenset(config.sys.publishers))


def _dynamic(config: Config) -> DynamicRules | None:
    if config.dynamic_security is None:
        return None
    data_dir = config.data_dir if config.data_dir is not None else str(default_data_dir(os.environ))
    path = path_of(config.dynamic_security, data_dir)
    if path is None:
        raise ConfigError("dynamic_security.file is missing, and so is data_dir: name a file, or a data directory")
    try:
        return DynamicRules(load_dynamic_security(path))
    except DynamicSecurityError as error:
        raise ConfigError(f"dynamic_security.file: {error}") from None
