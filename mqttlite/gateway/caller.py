"""The door of the gateway: authenticates requests with the authenticators and the jail of MQTT.

The result is a `Caller` with a role. Roles control access to the broker: viewing, acting, changing. The rules decide
which topics a caller may use, as for MQTT, whatever the role. Invariant: each route gets its caller from
`Callers.admit`, which refuses who is banned; a cached caller is at most a second old, and never outlives its
credentials.
"""

import base64
import binascii
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

from starlette.requests import HTTPConnection

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.load.rate_limits import BucketTable, Rate
from mqttlite.core.source import THE_PROGRAM, Source
from mqttlite.gateway.bodies import Scope
from mqttlite.gateway.browser_sessions import BrowserSessions
from mqttlite.gateway.client_certificates import STATE, ClientCertificate, certificate_of
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.elsewhere import CALLER, NodeCaller
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.strangers import ADMITTED
from mqttlite.net.address_key import address_key
from mqttlite.net.local_host import is_local
from mqttlite.operations.bans import BanKind, Bans, address_of
from mqttlite.security.addresses import network_of
from mqttlite.security.api_keys import PREFIX
from mqttlite.security.authenticator import Credentials
from mqttlite.wire.reason_codes import ReasonCode

LISTENER: Final = "http"
"""The name of the gateway in logs and telemetry, and of its listener for authenticators."""

ADMIN_SOCKET: Final = "admin socket"
"""How callers of the admin socket came, and their name in bans, logs and events."""

REMEMBERED_S: Final = 0.4
"""How long a login need not be checked again: with `api_keys.LOOK_S` a revoked key is refused within a second."""

MAX_REMEMBERED: Final = 10_000
"""Logins that are remembered, some 5 MB: the oldest make room."""

MAX_CREDENTIALS_BYTES: Final = 12_288
"""Of credentials: more than the longest token, and less than all headers may have."""

_NO_STATE: Final[dict[str, Any]] = {}

_Key = tuple[bytes, str, str]
"""Credentials, from where they come, and the user that the certificate of their connection names."""


class Role(IntEnum):
    """Each may do what the lower ones may."""

    USER = 0
    """Publishes, subscribes and makes topics, as the rules allow."""
    VIEWER = 1
    """Looks at clients, sessions, rules and metrics."""
    OPERATOR = 2
    """Disconnects, purges, removes, traces."""
    ADMIN = 3
    """Changes rules, users, tokens and the configuration."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. Requests of the same caller may have separate, equal values."""

    username: str | None
    role: Role
    grants: Grants = field(default=NO_GRANTS, compare=False)
    how: str = "anonymous"
    """`anonymous`, `login` (a password or token of MQTT), `certificate`, `key <id>`, or `admin socket`; of one that has
    asked another node, with ` at node <name>` behind it."""
    peer: str = ""
    """`address:port`."""
    certificate: ClientCertificate | None = field(default=None, compare=False, repr=False)
    """That of its connection, if it is one."""
    source: Source = field(default=THE_PROGRAM, compare=False, repr=False)
    """The publisher of its messages: the rules know it by its user."""

    @property
    def client_id(self) -> str:
        """The client identifier in rules, logs and telemetry for a caller without a session."""
        return LISTENER if self.username is None else f"{LISTENER}-{self.username}"

    @property
    def shown(self) -> str:
        """The caller in logs and events."""
        return self.how if self.how.startswith(ADMIN_SOCKET) else f"{self.username or 'anonymous'} ({self.how})"

    @property
    def key(self) -> str:
        """Names the caller for limits: its key or user, or its network."""
        if self.how.startswith("key "):
            return self.how
        return f"network {network_of(self.peer)}" if self.username is None else f"user {self.username}"

    def may(self, role: Role) -> bool:
        return self.role >= role


class Callers:
    """Authenticates requests. One for each gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context: Final = context
        options = context.options
        self.sessions: Final = BrowserSessions(context.clock, is_secure=options.tls is not None)
        """Of browsers that logged in by the form of the dashboard."""
        self._remembered: Final[dict[_Key, tuple[Caller, float]]] = {}
        self._anonymous_role: Final = Role[
            (options.anonymous_role or ("viewer" if context.is_local and not options.mount_point else "user")).upper()
        ]
        self._rates: Final = BucketTable(Rate(options.requests_per_s)) if options.requests_per_s else None

    async def admit(self, request: HTTPConnection, *, token_in_query: bool = False, is_counted: bool = True) -> Caller:
        """The caller of a request, who may be here. Raises `Problem`.

        `token_in_query` is for EventSource and WebSocket of browsers, which send no headers: `?token=`. `is_counted` is
        false for a second look at the same request, and for messages, which count in the quotas.
        """
        scope = request.scope
        peer = peer_of(scope)
        self._refuse_banned("", None, peer)
        caller = self._remembered_of(scope) or await self._find(request, token_in_query)
        self._refuse_banned(caller.client_id, caller.username, peer)
        scope.setdefault("state", {})[ADMITTED] = True
        if is_counted:
            self._count(caller)
        return caller

    def highest_role(self, kind: BanKind, value: str) -> Role:
        """The highest role that a ban would keep out: of the user, of the user of the client, or of callers of lately
        from the address."""
        if kind == "address":
            roles = [each.role for each, _ in self._remembered.values() if address_of(each.peer) == value]
            return max(roles, default=Role.USER)
        context = self._context
        user: str | None = value
        if kind == "client":
            session = context.core.sessions.get(value)
            user = value.removeprefix(f"{LISTENER}-") if session is None else session.username
        keys = [Role[each.role.upper()] for each in context.api_keys.entries() if each.user == user]
        return max([Role[context.options.role_of(user).upper()], *keys]) if user is not None else Role.USER

    def is_known(self, scope: Scope) -> bool:
        """Whether a request shows credentials that were accepted lately. It may be refused all the same."""
        for name, value in scope["headers"]:
            if name == b"authorization":
                client = scope["client"]
                return (value, client[0] if client else "unix", "") in self._remembered
        return self.sessions.has(HTTPConnection(scope))

    async def log_in(self, given: str, scope: Scope) -> Caller:
        """The caller with credentials that a form has, in the form of the header `Authorization`. Raises `Problem`."""
        peer = peer_of(scope)
        self._refuse_banned("", None, peer)
        caller = await self._by_credentials(given, scope, None)
        self._refuse_banned(caller.client_id, caller.username, peer)
        return caller

    def _remembered_of(self, scope: Scope) -> Caller | None:
        """A caller whose credentials were checked a moment ago, found quickly; None: look closer."""
        given = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                given = value
                break
        if not given or STATE in scope.get("state", _NO_STATE):
            return None
        client = scope["client"]
        found = self._remembered.get((given, client[0] if client else "unix", ""))
        return found[0] if found is not None and found[1] > self._context.clock() else None

    def _remembered_at(self, peer: str, key: _Key) -> Caller | None:
        """A caller from the same address, and no neighbour in its network: bans ask for the address at each message."""
        found = self._remembered.get(key)
        is_same = found is not None and found[0].peer.rpartition(":")[0] == peer.rpartition(":")[0]
        return found[0] if found is not None and is_same and found[1] > self._context.clock() else None

    async def _find(self, request: HTTPConnection, token_in_query: bool) -> Caller:
        """Find the caller that sends a request. Raises `Problem`."""
        scope = request.scope
        certificate = certificate_of(request)
        if certificate is not None and certificate.is_revoked:
            raise _refused("the client's certificate is revoked")
        given = request.headers.get("authorization", "")
        if not given and token_in_query and request.query_params.get("token"):
            given = f"Bearer {request.query_params['token']}"
        if given:
            return await self._by_credentials(given, scope, certificate)
        given = self.sessions.authorization_of(request)
        if not given:
            if certificate is not None:
                return await self._by_certificate(certificate, peer_of(scope))
            return self._anonymous(request, peer_of(scope))
        try:
            return await self._by_credentials(given, scope, certificate)
        except Problem as problem:
            if problem.code is Code.NOT_AUTHENTICATED:  # revoked, changed or expired
                self.sessions.end(request)
            raise

    async def _by_credentials(self, given: str, scope: Scope, certificate: ClientCertificate | None) -> Caller:
        """The caller with these credentials, in the form of the header `Authorization`. Raises `Problem`."""
        client = scope.get("client")
        if len(given) > MAX_CREDENTIALS_BYTES:
            raise _refused(f"credentials of {len(given)} bytes: {MAX_CREDENTIALS_BYTES} at most")
        now = self._context.clock()
        identity = "" if certificate is None else certificate.identity
        key = (given.encode("latin-1", "replace"), client[0] if client else "unix", identity)
        found = self._remembered.get(key)
        if found is not None and found[1] > now:
            return _with(found[0], certificate)
        caller = await self._check(given, peer_of(scope), identity or None)
        self._remember(key, caller)
        return _with(caller, certificate)

    async def _by_certificate(self, certificate: ClientCertificate, peer: str) -> Caller:
        """A caller that shows a certificate and nothing else. Raises `Problem`."""
        context = self._context
        identity = certificate.identity
        key = (b"", network_of(peer), identity)
        found = self._remembered_at(peer, key)
        if found is not None:
            return _with(found, certificate)
        lets_in = "certificate" in (context.options.authentication or ())
        if not lets_in and context.must_log_in:
            raise _refused(
                "credentials are missing: send a header Authorization, with Bearer or Basic; a certificate alone is "
                'enough where http.authentication has "certificate"'
            )
        role = Role[context.options.role_of(identity).upper()]
        grants = NO_GRANTS
        if lets_in:
            verdict = await context.login(_credentials(None, None, peer, identity))
            if verdict.reason_code != ReasonCode.SUCCESS:
                raise _problem_of(verdict.reason_code)
            grants = verdict.grants
        else:
            role = max(role, self._anonymous_role)
        caller = self._with_source(Caller(identity, role, grants, "certificate", peer))
        self._remember(key, caller)
        return _with(caller, certificate)

    def _remember(self, key: _Key, caller: Caller) -> None:
        now = self._context.clock()
        self._remembered.pop(key, None)
        if len(self._remembered) >= MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[key] = (caller, min(now + REMEMBERED_S, caller.grants.expires_at))

    def _with_source(self, caller: Caller) -> Caller:
        core, quotas = self._context.core, self._context.quotas
        client_id, username, peer = caller.client_id, caller.username, caller.peer
        if quotas is None:
            return replace(caller, source=core.publisher(client_id, username, caller.grants, address=peer))
        address = address_key(peer) if quotas.incoming.addresses is not None else ""
        buckets = quotas.incoming.of(f"{client_id} {caller.key}", username, address, self._context.clock())
        own = quotas.topics.get(username or "")
        return replace(caller, source=core.publisher(client_id, username, caller.grants, own, peer, buckets))

    def _refuse_banned(self, client_id: str, username: str | None, peer: str) -> None:
        """Raises `Problem` for a caller, or an address, that is banned."""
        _refuse_banned(self._context.admin.bans, client_id, username, peer)

    def _count(self, caller: Caller) -> None:
        """Count a request of a caller. Raises `Problem` where it sends too many."""
        if self._rates is None:
            return
        now = self._context.clock()
        buckets = self._rates.of(caller.key, now)
        if not buckets.have(1, 0, now):
            raise Problem(
                Code.TOO_MANY_REQUESTS,
                f"more than {self._context.options.requests_per_s:g} requests a second (http.requests_per_s)",
                headers={"Retry-After": "1"},
            )
        buckets.take(1, 0, now)

    def _anonymous(self, request: HTTPConnection, peer: str) -> Caller:
        context = self._context
        if context.must_log_in:
            raise _refused("credentials are missing: send a header Authorization, with Bearer or Basic")
        if context.is_local and not is_local(request.headers.get("host", "")):
            raise Problem(Code.WRONG_HOST, "without credentials the gateway answers only as localhost")
        key = (b"", network_of(peer), "")
        found = self._remembered_at(peer, key)
        if found is not None:
            return found
        caller = self._with_source(Caller(None, self._anonymous_role, peer=peer))
        self._remember(key, caller)
        return caller

    async def _check(self, given: str, peer: str, identity: str | None) -> Caller:
        scheme, _, value = given.partition(" ")
        value = value.strip()
        if scheme.lower() == "bearer":
            if value.startswith(PREFIX):
                return await self._by_key(value, peer)
            username, password = None, value.encode()
        elif scheme.lower() == "basic":
            username, password = _basic(value)
        else:
            raise _refused("the header Authorization begins with Bearer or Basic")
        verdict = await self._context.login(_credentials(username, password, peer, identity))
        if verdict.reason_code != ReasonCode.SUCCESS:
            raise _problem_of(verdict.reason_code)
        user = identity or verdict.username or username  # as over MQTT
        role = Role[self._context.options.role_of(user).upper()]
        return self._with_source(Caller(user, role, verdict.grants, "login", peer))

    async def _by_key(self, secret: str, peer: str) -> Caller:
        key = self._context.api_keys.find(secret)
        if key is None:  # the jail counts the failure and delays the answer
            verdict = await self._context.login(_credentials(None, secret.encode(), peer))
            raise _problem_of(verdict.reason_code or ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        grants = NO_GRANTS
        if key.expires_at is not None:
            left = key.expires_at - self._context.wall(self._context.clock()).timestamp()
            grants = Grants(expires_at=self._context.clock() + left)
        return self._with_source(Caller(key.user, Role[key.role.upper()], grants, f"key {key.id}", peer))


class SocketCallers:
    """Callers of the admin socket: the mode of its file lets in only those who may do everything."""

    _CALLER: Final = Caller(None, Role.ADMIN, how=ADMIN_SOCKET, peer="unix")

    async def admit(self, request: HTTPConnection, *, token_in_query: bool = False, is_counted: bool = True) -> Caller:
        """As `Callers.admit`."""
        return self._CALLER

    def highest_role(self, kind: BanKind, value: str) -> Role:
        """None: a caller that may use the socket may ban any client."""
        return Role.USER


class NodeCallers:
    """Callers of other nodes, which have admitted them. `callers` are those of the gateway here, if there is one;
    `bans` are those of this node."""

    def __init__(self, callers: Callers | None, bans: Bans) -> None:
        self._callers: Final = callers
        self._bans: Final = bans

    async def admit(self, request: HTTPConnection, *, token_in_query: bool = False, is_counted: bool = True) -> Caller:
        """As `Callers.admit`."""
        found: NodeCaller = request.scope["state"][CALLER]
        caller = Caller(found.username, Role(found.role), how=found.how, peer=peer_of(request.scope))
        if not caller.how.startswith(ADMIN_SOCKET):
            _refuse_banned(self._bans, caller.client_id, caller.username, caller.peer)
        return caller

    def highest_role(self, kind: BanKind, value: str) -> Role:
        """As `Callers.highest_role`."""
        return Role.USER if self._callers is None else self._callers.highest_role(kind, value)


class MetricsCallers:
    """Callers of the metrics port, who may look. If that `is_local_only`, it was asked by a name of this machine."""

    _CALLER: Final = Caller(None, Role.VIEWER, how="metrics port")

    def __init__(self, is_local_only: bool) -> None:
        self._is_local_only: Final = is_local_only

    async def admit(self, request: HTTPConnection, *, token_in_query: bool = False, is_counted: bool = True) -> Caller:
        """As `Callers.admit`."""
        host = request.headers.get("host")
        if self._is_local_only and host and not is_local(host):
            raise Problem(Code.WRONG_HOST, "this is served here as localhost only")
        return self._CALLER


def check_role(caller: Caller, role: Role) -> None:
    """Raises `Problem` for a caller with a lower role."""
    if not caller.may(role):
        raise Problem(
            Code.NOT_AUTHORIZED,
            f"this needs the role {role.name.lower()}, and the caller has {caller.role.name.lower()}",
        )


def _refuse_banned(bans: Bans, client_id: str, username: str | None, peer: str) -> None:
    ban = bans.of(client_id, username, peer)
    if ban is not None:
        raise Problem(Code.NOT_AUTHORIZED, f"the {ban.kind} is banned for a while")


def peer_of(scope: Any) -> str:
    """`address:port` of the other end."""
    client = scope.get("client")
    if client is None:
        return "unix"
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _credentials(username: str | None, password: bytes | None, peer: str, identity: str | None = None) -> Credentials:
    return Credentials("", username, password, identity, peer, LISTENER)


def _with(caller: Caller, certificate: ClientCertificate | None) -> Caller:
    return caller if certificate is None else replace(caller, certificate=certificate)


def _basic(value: str) -> tuple[str, bytes]:
    try:
        name, colon, password = base64.b64decode(value, validate=True).partition(b":")
        if not colon:
            raise ValueError
        return name.decode(), password
    except (binascii.Error, ValueError):
        raise _refused("the credentials behind Basic are not base64 of user:password in UTF-8") from None


def _refused(detail: str) -> Problem:
    return Problem(Code.NOT_AUTHENTICATED, detail, headers={"WWW-Authenticate": 'Bearer realm="mqttlite"'})


def _problem_of(reason_code: int) -> Problem:
    if reason_code == ReasonCode.CONNECTION_RATE_EXCEEDED:
        return Problem(
            Code.TOO_MANY_FAILED_LOGINS,
            "too many failed logins from this address; try again later",
            headers={"Retry-After": "60"},
        )
    if reason_code in (ReasonCode.SERVER_BUSY, ReasonCode.SERVER_UNAVAILABLE):
        return Problem(Code.BUSY, "logins cannot be checked now; try again", headers={"Retry-After": "1"})
    return _refused("the credentials are not accepted: they are wrong, revoked or expired")
