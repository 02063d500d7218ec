"""The dependencies of the routers: the parts of one run of a broker.

`assembly.administration` makes the part that the admin socket needs, and `assembly.http_gateway` adds the gateway's.
Invariant: routers change the broker only through these parts, in the broker's event loop.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqttlite.catalogue.entries import Lookup
from mqttlite.config import Config
from mqttlite.config.http import HttpOptions
from mqttlite.core.authentication import Verdict
from mqttlite.core.broker import Broker as Core
from mqttlite.core.load.quotas import Quotas
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries
from mqttlite.event_hub import EventHub
from mqttlite.files.shared_document import SharedDocument
from mqttlite.gateway.counters import HttpCounters
from mqttlite.gateway.mount_point import MountPoint
from mqttlite.gateway.open_sessions import OpenSessions
from mqttlite.gateway.tickets import Tickets
from mqttlite.gateway.topics import Topics
from mqttlite.net.listeners import Listener
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.operations.admin import Admin
from mqttlite.operations.certificate_watch import CertificateWatch
from mqttlite.operations.reports import Reports
from mqttlite.operations.surroundings import Surroundings
from mqttlite.security.api_keys import ApiKeys
from mqttlite.security.authenticator import Credentials
from mqttlite.security.dynamic_security import DynamicSecurity
from mqttlite.security.live_rules import LiveRules
from mqttlite.telemetry.recent_events import RecentEvents
from mqttlite.telemetry.snapshot import Snapshots

if TYPE_CHECKING:
    from mqttlite.extensions.bridge.bridges import Bridges
    from mqttlite.extensions.dynamic_security.control import ControlTopic
    from mqttlite.extensions.explain.explanations import Explanations
    from mqttlite.extensions.nodes.nodes import Nodes
    from mqttlite.extensions.pubsub.iam_policies import IamPolicies
    from mqttlite.extensions.queues.queueing import Queueing
    from mqttlite.extensions.schemas.service import SchemaRegistry
    from mqttlite.extensions.streams.service import Streams
    from mqttlite.gateway.elsewhere import Elsewhere
    from mqttlite.security.passwords import PasswordAuthenticator


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """The parts that routes need which the admin socket serves, too."""

    config: Config
    admin: Admin
    """Lists, shows, disconnects and purges: never the core directly for that."""
    reports: Reports
    """The reports on the broker, its alarms, and the answers to `why`."""
    hub: EventHub
    schemas: "SchemaRegistry | None"
    """None without that extension."""
    streams: "Streams | None"
    """None without that extension."""
    bridges: "Bridges | None"
    """None without that extension."""
    nodes: "Nodes | None"
    """The other nodes; None if this broker is no node."""
    elsewhere: "Elsewhere | None"
    """Answers what is about them."""
    queueing: "Queueing | None"
    """The queues. None without that extension."""
    surroundings: Surroundings | None
    """What runs around the broker; None if it is alone."""
    explanations: "Explanations | None"
    """Predicts the outcome of messages and subscriptions. None without that extension."""
    read_page: Callable[[str, int, int], Awaitable[list[Delivery | None]]]
    """Reads messages of the store, by the name of a log, the first number and how many."""
    read_entries: Callable[[str, int, int, int], Awaitable[Entries]]
    """The same of a log with gaps, by its name, the first offset, the one after the last, and how many."""
    commit: Callable[[], Awaitable[None]]
    """Carries out a change of the core, and waits until it is committed."""
    reload: Callable[[], None]
    """Begins what SIGHUP does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayContext(OperatorContext):
    """One for each run. A part that a new router needs is a field here, which `assembly.http_gateway` fills."""

    options: HttpOptions
    broker_id: str
    core: Core
    snapshots: Snapshots
    recent_events: RecentEvents
    user_names: Callable[[], Awaitable[set[str]]]
    """Of the users that are known by name."""
    loop_driver: LoopDriver
    """After a call of the core, `loop_driver.wake()` carries out what it decided."""
    live_rules: LiveRules
    listeners: list[Listener]
    certificates: CertificateWatch
    api_keys: ApiKeys
    lookup: Callable[[], Lookup]
    """The schemas of now, for the catalogue."""
    sessions: OpenSessions
    """The subscribers over HTTP."""
    tickets: Tickets
    """Of their sessions with a name."""
    topics: Topics
    """The topics made over HTTP."""
    mount_point: MountPoint
    """The mount point before the topics of callers."""
    iam: "IamPolicies | None"
    """What Google's clients set, and get back. None without the extension that serves them."""
    login: Callable[[Credentials], Awaitable[Verdict]]
    """Authenticates a caller with the same authenticators and jail as MQTT."""
    must_log_in: bool
    """Whether requests without credentials are refused."""
    is_local: bool
    """Whether only this machine reaches the gateway."""
    quotas: Quotas | None
    """How much each caller may publish and get, as clients of MQTT; None: any amount."""
    clock: Callable[[], float]
    """The broker's seconds, for calls of the core."""
    wall: Callable[[float], datetime]
    """The UTC time of one of them."""
    passwords: "list[PasswordAuthenticator]"
    """The password files in use."""
    password_documents: Mapping[Path, SharedDocument]
    """The same files, for changes of them."""
    dynamic_security: DynamicSecurity | None
    """Users, groups and roles that are changed while the broker runs; None where the configuration has none."""
    control: Callable[[], "ControlTopic | None"]
    """Executes the commands that change them."""
    extension_pages: Mapping[str, tuple[str, Callable[[], str]]]
    """Title and content (HTML) of the pages of extensions, by name. They come while extensions start."""
    not_ready: Callable[[], str]
    """Why no clients may connect, in a sentence; empty while they may."""
    counters: HttpCounters = field(default_factory=HttpCounters)
    jobs: list[Callable[[], Coroutine[None, None, None]]] = field(default_factory=list)
    """They run while the gateway serves. A feature adds its own where it makes its routes."""


def parts_of(context: OperatorContext) -> dict[str, Any]:
    """Its fields by name, for a context that has more."""
    return {each.name: getattr(context, each.name) for each in fields(OperatorContext)}
