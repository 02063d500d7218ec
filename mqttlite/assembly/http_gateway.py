"""Builds the HTTP gateway if the config has a section for it. Only then its libraries, an extra, are imported."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mqttlite.assembly.administration import Administration
from mqttlite.assembly.logins import HTTP_LISTENER, Logins
from mqttlite.assembly.network import Network
from mqttlite.assembly.permissions import Permissions
from mqttlite.assembly.runtime import Runtime
from mqttlite.assembly.telemetry import Telemetry
from mqttlite.catalogue.entries import NoSchemas
from mqttlite.config import Config, ConfigError
from mqttlite.config.checks import answers_anybody, api_key_file, http_warnings, is_loopback, open_gateway
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.security.api_keys import ApiKeyFileError, ApiKeys

if TYPE_CHECKING:
    from mqttlite.extensions.pubsub.iam_policies import IamPolicies
    from mqttlite.extensions.schemas.schemas import Schemas
    from mqttlite.gateway.gateway import Gateway

_log = logging.getLogger("mqttlite")


def build_gateway(
    runtime: Runtime,
    schemas: "Schemas | None",
    permissions: Permissions,
    logins: Logins,
    network: Network,
    telemetry: Telemetry,
    administration: Administration,
    *,
    not_ready: Callable[[], str],
    extension_pages: Mapping[str, tuple[str, Callable[[], str]]],
) -> "Gateway | None":
    """The gateway; None if the config has none. Raises `ConfigError`."""
    config = runtime.config
    listener = config.http_listener()
    if config.http is None or listener is None:
        return None
    try:
        from mqttlite.gateway.context import GatewayContext, parts_of  # needs the extra
        from mqttlite.gateway.gateway import Gateway
        from mqttlite.gateway.mount_point import MountPoint
        from mqttlite.gateway.open_sessions import OpenSessions
        from mqttlite.gateway.tickets import FILE_NAME as TICKET_FILE_NAME
        from mqttlite.gateway.tickets import Tickets
        from mqttlite.gateway.topics import Topics

        missing = "" if find_spec("jinja2") else "jinja2"  # pages import it
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
    if missing:
        raise ConfigError(f"http: {missing} is missing, which the gateway needs: pip install 'mqttlite[gateway]'")
    try:
        api_keys = ApiKeys(api_key_file(config), clock=runtime.clock)
    except ApiKeyFileError as error:
        raise ConfigError(f"http.api_key_file: {error}") from None
    auth_chain = logins.chain(HTTP_LISTENER, listener)
    if auth_chain.is_open and (problems := [str(each) for each in open_gateway(config, bool(api_keys))]):
        raise ConfigError(*problems)
    is_local = is_loopback(listener.host)
    may_be_anonymous = config.passwords_of(listener)[1] or (auth_chain.is_open and answers_anybody(config))
    for sentence in http_warnings(config, not may_be_anonymous):
        _log.warning("%s", sentence)
    topic_rules = None if permissions.has_authorizer else permissions.live_rules
    mount_point = MountPoint(config.http.mount_point or "", runtime.core.namespaces)
    ticket_file = Path(config.data_dir) / TICKET_FILE_NAME if config.data_dir else None
    gateway = Gateway(
        GatewayContext(
            **parts_of(administration.context()),
            options=config.http,
            broker_id=runtime.broker_id,
            core=runtime.core,
            snapshots=telemetry.snapshots,
            recent_events=telemetry.recent_events,
            user_names=logins.user_names,
            loop_driver=runtime.loop_driver,
            live_rules=permissions.live_rules,
            listeners=network.listeners,
            certificates=network.certificates,
            api_keys=api_keys,
            lookup=NoSchemas if schemas is None else schemas.lookup,
            sessions=OpenSessions(),
            tickets=Tickets(ticket_file, mount_point.prefix),
            topics=Topics(permissions.topics, permissions.topic_file, topic_rules, mount_point),
            mount_point=mount_point,
            iam=_iam_policies(config),
            login=partial(logins.questions.login, chain=auth_chain),
            must_log_in=not may_be_anonymous,
            is_local=is_local,
            quotas=network.quotas.of_listener(None),
            clock=runtime.clock,
            wall=runtime.wall.at,
            passwords=logins.passwords,
            password_documents=logins.password_documents,
            dynamic_security=permissions.dynamic_security,
            control=lambda: permissions.control,
            not_ready=not_ready,
            extension_pages=extension_pages,
        )
    )
    telemetry.reports.http = gateway.figures
    return gateway


def _iam_policies(config: Config) -> "IamPolicies | None":
    if "pubsub" not in BUILT_IN:
        return None
    from mqttlite.extensions.pubsub.iam_policies import FILE_NAME, IamPolicies

    try:
        return IamPolicies(Path(config.data_dir) / FILE_NAME if config.data_dir else None)
    except (OSError, ValueError) as error:
        text = f"data_dir: {config.data_dir}/{FILE_NAME} cannot be used: {error}"
        raise ConfigError(f"{text}. Put back a copy, or remove it: it gives nobody a right") from None
