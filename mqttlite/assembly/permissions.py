"""Builds the rules for publishing and subscribing, and puts changed rules into force.

Rules come from an ACL file, topic policies, topics created over HTTP, dynamic security and credentials. A program may
instead give the broker its own authorizer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqttlite.assembly.runtime import Runtime
from mqttlite.config import ConfigError
from mqttlite.config.checks import lets_bridges
from mqttlite.core.authorizer import Authorizer
from mqttlite.extensions.built_in import BUILT_IN, turned_on
from mqttlite.files.shared_document import SharedDocument
from mqttlite.security.acl_file import AclFileError
from mqttlite.security.both_rules import BothRules
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.security.dynamic_security import DynamicSecurity, DynamicSecurityError, path_of
from mqttlite.security.dynamic_security.document import parse
from mqttlite.security.dynamic_security.first_file import remove_passwords
from mqttlite.security.dynamic_security.model import State, changed_users
from mqttlite.security.granted_topics import GrantedTopics
from mqttlite.security.live_rules import LiveRules
from mqttlite.security.rules import Rules
from mqttlite.security.topic_file import FILE_NAME as TOPIC_FILE_NAME
from mqttlite.security.topic_file import load as load_topics
from mqttlite.security.topic_policies import CheckOf, TopicPolicies
from mqttlite.security.topic_records import TopicFileError, TopicRecord, policies_of

if TYPE_CHECKING:
    from mqttlite.extensions.dynamic_security.control import ControlTopic

_log = logging.getLogger("mqttlite")


class Permissions:
    """`may_grant_topics` says whether the program's authenticators may grant topics to clients. `check_of` gives the
    schema checks. `on_changed` is called after every change, `on_policies` with new topic policies.

    Raises `ConfigError` for unusable files.
    """

    def __init__(
        self,
        runtime: Runtime,
        authorizer: Authorizer | None,
        *,
        may_grant_topics: bool,
        check_of: CheckOf | None,
        on_changed: Callable[[], None],
        on_policies: Callable[[TopicPolicies], None],
    ) -> None:
        self._runtime: Final = runtime
        self._may_grant_topics: Final = may_grant_topics
        self._on_changed: Final = on_changed
        self._on_policies: Final = on_policies
        self._granted_topics: GrantedTopics | None = None
        self._both_rules: BothRules | None = None
        self.dynamic_security: Final = self._load_dynamic_security()
        self._dynamic_document: Final = self._share_dynamic_security()
        self._kick: Callable[[frozenset[str | None]], Awaitable[None]] | None = None
        self.control: ControlTopic | None = None
        """Executes its commands."""
        if self.dynamic_security is not None and authorizer is not None:
            raise ConfigError("dynamic_security: the program gives the broker an authorizer; one of both")
        data_dir = runtime.config.data_dir
        self.topic_file: Final = Path(data_dir) / TOPIC_FILE_NAME if data_dir else None
        self.has_authorizer: Final = authorizer is not None
        """Whether the program's authorizer decides instead of rules from files."""
        self.topics: Final = self._load_topics()
        """The topics created over HTTP."""
        self.live_rules: Final = self._load_rules(check_of)
        self._rules = self._default_rules(self._combined(self.live_rules.rules) if authorizer is None else authorizer)
        runtime.core.authorize(self._rules)

    @property
    def policies(self) -> TopicPolicies:
        """The topic policies in force."""
        return _policies_of(self.live_rules.rules)

    def open(
        self,
        kick: Callable[[frozenset[str | None]], Awaitable[None]],
        connections: Callable[[str, str | None], list[str]],
    ) -> None:
        """Start to serve the commands of dynamic security. `kick` ends the connections of users, and `connections` has
        the addresses of a user's connections, or of its one with a client identifier."""
        self._kick = kick
        dynamic, document = self.dynamic_security, self._dynamic_document
        if dynamic is None or document is None:
            return
        if "dynamic_security" in BUILT_IN:
            from mqttlite.extensions.dynamic_security.control import TOPIC, ControlTopic, Port

            may_publish = self._runtime.core.permissions.may_publish
            port = Port(
                self._respond, self._on_dynamic_security, kick, connections, lambda source: may_publish(source, TOPIC)
            )
            self.control = ControlTopic(dynamic.path, document, dynamic.rules, dynamic.passwords, port)
            self._runtime.core.bind(TOPIC, self.control)
        self._on_dynamic_security()  # the file may have changed while the broker was down

    @property
    def documents(self) -> list[SharedDocument]:
        """What of it all nodes have; the rules also without a file, for a reload may name one."""
        rules = [self.live_rules.document]
        return rules if self._dynamic_document is None else [*rules, self._dynamic_document]

    async def close(self) -> None:
        """Finish the commands that are under way."""
        if self.control is not None:
            await self.control.stop()
        if self.dynamic_security is not None:
            self.dynamic_security.close()

    # ------------------------------------------------------------------ sources of the rules

    def _load_rules(self, check_of: CheckOf | None) -> LiveRules:
        config = self._runtime.config
        if self.has_authorizer and config.has_rules:
            option = "topic_policies" if config.acl_file is None else "acl_file"
            raise ConfigError(f"{option}: the program gives the broker an authorizer; one of both")
        try:
            return LiveRules(
                *(config.acl_file, config.topic_policies, config.groups),
                on_rules=self._on_rules,
                roles_in_use=self._roles_in_use,
                max_roles=2 * config.limits.max_sessions,
                on_forgotten=self._ask_roles_again,
                topics=[] if self.has_authorizer else policies_of(self.topics),
                check_of=check_of,
            )
        except AclFileError as error:
            raise ConfigError(*(f"acl_file: {problem}" for problem in error.problems)) from None

    def _load_topics(self) -> list[TopicRecord]:
        try:
            topics = load_topics(self.topic_file)
        except TopicFileError as error:
            raise ConfigError(f"data_dir: {error}") from None
        if self.has_authorizer and policies_of(topics):
            _log.warning("%s: its permissions do not hold, for other rules are in force", self.topic_file)
        return topics

    def _load_dynamic_security(self) -> DynamicSecurity | None:
        config = self._runtime.config
        if config.dynamic_security is None:
            return None
        path = path_of(config.dynamic_security, config.data_dir)
        if path is None:
            raise ConfigError("dynamic_security.file is missing, and so is data_dir: name a file, or a data directory")
        try:
            return DynamicSecurity(
                *(path, config.dynamic_security, self._dynamic_roles_in_use), on_forgotten=self._ask_roles_again
            )
        except DynamicSecurityError as error:
            raise ConfigError(f"dynamic_security.file: {error}") from None

    def _share_dynamic_security(self) -> SharedDocument | None:
        dynamic = self.dynamic_security
        if dynamic is None:
            return None

        async def replace(content: bytes) -> None:
            if document.gives_way:
                remove_passwords(dynamic.path)
            await use(*await asyncio.to_thread(dynamic.replace_file, content))

        async def reload(content: bytes) -> None:
            state = await asyncio.to_thread(parse, content)
            await use(state, changed_users(dynamic.rules.state, state))

        async def use(state: State, changed: frozenset[str | None]) -> None:
            dynamic.rules.state = state
            self._on_dynamic_security()
            if self._kick is not None:
                await self._kick(changed)

        document = SharedDocument(
            *("dynamic-security", parse, replace), path=dynamic.path, lock=asyncio.Lock(), reload=reload
        )
        document.gives_way = dynamic.is_new
        return document

    def _combined(self, rules: Rules | None) -> Authorizer | None:
        """The rules of files and policies, combined with those of dynamic security if there are any."""
        self._both_rules = None
        if self.dynamic_security is None:
            return rules
        if rules is None:
            return self.dynamic_security.rules
        max_roles = 2 * self._runtime.config.limits.max_sessions
        self._both_rules = BothRules(
            *(self.dynamic_security.rules, rules, self._config_roles_in_use, max_roles),
            on_forgotten=self._ask_roles_again,
        )
        return self._both_rules

    def _default_rules(self, authorizer: Authorizer | None) -> Authorizer:
        """The built-in rules around the given authorizer and the topics granted by credentials."""
        config, sessions = self._runtime.config, self._runtime.core.sessions
        if (
            (config.jwt is not None and config.jwt.limits_topics)
            or config.http_auth is not None
            or self._may_grant_topics
        ):
            # `DefaultRules` makes two roles of each
            authorizer = self._granted_topics = GrantedTopics(
                *(authorizer, lambda: {each.role // 2 for each in sessions.values()}),
                on_forgotten=self._ask_roles_again,
            )
        analysts = frozenset(config.sys.publishers)
        return built_in_rules(analysts, authorizer, bridges=lets_bridges(config), extensions=turned_on(config))

    def _roles_in_use(self) -> set[int]:
        """The roles of sessions in the rules."""
        numbers = self._config_roles_in_use()
        return numbers if self._both_rules is None else self._both_rules.roles_of_second(numbers)

    def _dynamic_roles_in_use(self) -> set[int]:
        """The roles of sessions in the rules of dynamic security."""
        numbers = self._config_roles_in_use()
        return numbers if self._both_rules is None else self._both_rules.roles_of_first(numbers)

    def _config_roles_in_use(self) -> set[int]:
        """The roles of sessions in the rules of the configuration."""
        sessions = self._runtime.core.sessions.values()
        numbers = {session.role // 2 for session in sessions}  # `DefaultRules` makes two of each
        return numbers if self._granted_topics is None else self._granted_topics.rules_roles(numbers)

    def _ask_roles_again(self) -> None:
        self._runtime.core.permissions.ask_roles_again()

    # ------------------------------------------------------------------ changes of the rules

    def _on_rules(self, rules: Rules | None) -> None:
        self._rules = self._default_rules(self._combined(rules))
        self._runtime.core.authorize(self._rules)
        self._on_changed()
        self._on_policies(_policies_of(rules))

    def _on_dynamic_security(self) -> None:
        """The users, groups or roles of dynamic security changed."""
        self._runtime.core.authorize(self._rules)
        self._runtime.core.check_subscriptions()
        self._on_changed()

    def _respond(self, client_id: str, topic: bytes, payload: bytes) -> bool:
        sent = self._runtime.core.send(client_id, topic, payload, self._runtime.clock())
        self._runtime.loop_driver.wake()
        return sent


def _policies_of(rules: Rules | None) -> TopicPolicies:
    return TopicPolicies() if rules is None else rules.policies
