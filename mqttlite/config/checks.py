"""Checks a config whose single options are valid: for contradicting options, and for unusable files.

`conflicts` needs only the config. `file_problems` checks the named files without changing them. `warnings` are
sentences about settings that work but are probably unintended. Invariant: nothing here raises for a config.
"""

import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mqttlite.config.data_dir import default_data_dir
from mqttlite.config.options import Config, ListenerOptions
from mqttlite.config.shape import Problem
from mqttlite.extensions.built_in import BUILT_IN, refusal, resolve, turned_on
from mqttlite.files.writable import why_unwritable
from mqttlite.security.acl_file import AclFileError
from mqttlite.security.acl_file import load as load_acl
from mqttlite.security.api_keys import FILE_NAME as API_KEY_FILE_NAME
from mqttlite.security.api_keys import ApiKeyFileError
from mqttlite.security.api_keys import load as load_api_keys
from mqttlite.security.certificate_expiry import ends_of, expiry_warnings
from mqttlite.security.dynamic_security import DynamicSecurityError, DynamicSecurityOptions, path_of
from mqttlite.security.dynamic_security.document import load as load_dynamic_security
from mqttlite.security.password_file import PasswordFileError
from mqttlite.security.password_file import load as load_users
from mqttlite.security.tls import TlsConfigError, client_context, server_context
from mqttlite.security.token_options import TokenConfigError
from mqttlite.security.topic_policies import policy_problems

_EVERY_ADDRESS: Final = {
    "": "every address of this machine, for its host is empty",
    "0.0.0.0": "every IPv4 address of this machine",
    "::": "every IPv6 address of this machine",
}


def conflicts(config: Config) -> Iterator[Problem]:
    """Options of several sections that contradict each other."""
    yield from _same_names(config)
    yield from _same_ports(config)
    yield from _reused_ports(config)
    yield from _same_sockets(config)
    yield from _login_methods(config)
    yield from _mount_points(config)
    for each in BUILT_IN.values():
        if each.conflicts:
            yield from resolve(each.conflicts)(config)
    for number, sentence in policy_problems(config.topic_policies):
        yield Problem(f"topic_policies[{number}]", f": {sentence}")
    if config.dynamic_security is not None and config.dynamic_security.file is None and config.data_dir == "":
        yield Problem("dynamic_security.file", " is missing, and so is data_dir: name a file, or a data directory")


def _login_methods(config: Config) -> Iterator[Problem]:
    """Listeners whose clients log in by a method that is not set up."""
    listeners = {f"listeners[{number}]": listener for number, listener in enumerate(config.listeners)}
    gateway = config.http_listener()
    if gateway is not None:
        listeners["http"] = gateway
    for place, listener in listeners.items():
        path = f"{place}.authentication"
        password_file, allow_anonymous = config.passwords_of(listener)
        has_authority = listener.tls is not None and listener.tls.client_certificate_mode != "none"
        missing: dict[str, tuple[bool, str]] = {
            "password": (password_file is None, "set password_file"),
            "jwt": (config.jwt is None, "add a section [jwt]"),
            "dynamic_security": (config.dynamic_security is None, "add a section [dynamic_security]"),
            "http": (config.http_auth is None, "add a section [http_auth]"),
            "certificate": (not has_authority, "give it a section tls with a ca_file"),
        }
        for method in listener.authentication or ():
            is_missing, remedy = missing[method]
            if is_missing:
                yield Problem(path, f' has "{method}": {remedy}, or leave it out')
        if len(set(listener.authentication or ())) < len(listener.authentication or ()):
            yield Problem(path, " has a method twice: the first that knows the credentials decides, remove the second")
        if listener.authentication == () and not allow_anonymous:
            yield Problem(path, " is empty: nobody could log in; allow_anonymous = true lets everybody in")
        if listener.identity_from != "cn" and not has_authority:
            yield Problem(
                f"{place}.identity_from",
                f' is "{listener.identity_from}": it needs a section tls with a ca_file, for there are no certificates',
            )


def _same_names(config: Config) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for number, listener in enumerate(config.listeners):
        first = seen.setdefault(listener.name, number)
        if first != number and listener.name:
            yield Problem(
                f"listeners[{number}].name",
                f" is {listener.name!r}, and listeners[{first}] has that name, too: the log and the metrics tell "
                "listeners apart by their names, give one of them another",
            )


def _mount_points(config: Config) -> Iterator[Problem]:
    """A gateway without mount point, whose callers would reach all topics although MQTT clients have a mount point."""
    if config.http is None or config.http.mount_point is not None:
        return
    for number, listener in enumerate(config.listeners):
        if listener.mount_point:
            yield Problem(
                "http.mount_point",
                f" is missing, and listeners[{number}].mount_point is {listener.mount_point!r}: with the same, callers "
                'over HTTP are below it, too; with "" they have all topics that the rules allow',
            )
            return


def _same_ports(config: Config) -> Iterator[Problem]:
    taken = [
        (f"listeners[{number}].port", each.host, each.port)
        for number, each in enumerate(config.listeners)
        if each.path is None
    ]
    if config.metrics is not None:
        taken.append(("metrics.port", config.metrics.host, config.metrics.port))
    if config.http is not None:
        taken.append(("http.port", config.http.host, config.http.port))
    for at, (path, host, port) in enumerate(taken):
        for other, other_host, other_port in taken[:at]:
            if port == other_port != 0 and _overlap(host, other_host):
                yield Problem(path, f" is {port}, and {other} is {port}, too: give one of them another port")
                break


def _reused_ports(config: Config) -> Iterator[Problem]:
    """Brokers that know nothing of each other, of which each would get a part of the clients."""
    for number, listener in enumerate(config.listeners):
        if listener.reuse_port and config.nodes is None:
            yield Problem(
                f"listeners[{number}].reuse_port", " is set, and there is no section nodes: only nodes share a port"
            )


def _overlap(one: str, other: str) -> bool:
    """Whether two hosts have a common address, as far as known without name look-ups."""
    hosts = {"127.0.0.1" if host == "localhost" else host for host in (one, other)}
    if len(hosts) == 1 or "" in hosts:
        return True
    for every, version in (("0.0.0.0", 4), ("::", 6)):
        if every in hosts:
            (rest,) = hosts - {every}
            try:
                return ipaddress.ip_address(rest).version == version
            except ValueError:  # a name
                return True
    return False


def _same_sockets(config: Config) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for number, listener in enumerate(config.listeners):
        if listener.path is not None:
            first = seen.setdefault(os.path.abspath(listener.path), number)
            if first != number:
                yield Problem(
                    f"listeners[{number}].path",
                    f" is {listener.path!r}, and that of listeners[{first}] is the same: give one of them another path",
                )


def open_listeners(config: Config) -> Iterator[Problem]:
    """Listeners that are open to the network without authentication, although the config does not allow that."""
    for number, listener in enumerate(config.listeners):
        if is_refused(config, listener):
            yield Problem(
                f"listeners[{number}].host",
                f" is {listener.host!r}, where the network reaches it, and clients need not say who they are: set "
                "password_file (--password-file), or, if everybody may come in, allow_anonymous = true "
                "(--allow-anonymous)",
            )


def open_gateway(config: Config, has_keys: bool) -> Iterator[Problem]:
    """The same for the gateway. Existing API keys count as a login method."""
    listener = config.http_listener()
    if listener is not None and is_refused(config, listener) and not has_keys:
        yield Problem(
            "http.host",
            f" is {listener.host!r}, where the network reaches it, and callers need not say who they are: set "
            "password_file, make an API key with 'mqttlite token new', or, if everybody may come in, "
            "http.allow_anonymous = true",
        )


def api_key_file(config: Config) -> Path | None:
    """The file with the gateway's API keys; None without a gateway, or without a place for it."""
    if config.http is None:
        return None
    if config.http.api_key_file is not None:
        return Path(config.http.api_key_file)
    return Path(config.data_dir) / API_KEY_FILE_NAME if config.data_dir else None


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def file_problems(config: Config) -> Iterator[Problem]:
    """The unusable files and folders of a config."""
    yield from _data_dir_problems(config.data_dir)
    if config.password_file is not None:
        yield from _password_problems("password_file", config.password_file)
    if config.acl_file is not None:
        yield from _acl_problems(config.acl_file)
    for number, listener in enumerate(config.listeners):
        yield from _listener_problems(f"listeners[{number}]", listener)
    http_listener = config.http_listener()
    if http_listener is not None:
        yield from _listener_problems("http", http_listener)
    keys = api_key_file(config)
    if keys is not None:
        try:
            load_api_keys(keys)
        except ApiKeyFileError as error:
            yield Problem("http.api_key_file", f": {error}")
    if config.jwt is not None:
        from mqttlite.security.token_keys import load_keys  # here, for cryptography takes a while

        try:
            load_keys(config.jwt)
        except TokenConfigError as error:
            yield Problem(f"jwt.{error.option}", f": {error}")
    if config.http_auth is not None:
        try:
            config.http_auth.context()
        except TlsConfigError as error:
            yield Problem("http_auth.ca_file", f": {error}")
    if not refusal("push") and config.push.ca_file is not None:
        try:
            client_context(config.push.ca_file)
        except TlsConfigError as error:
            yield Problem("push.ca_file", f": {error}")
    if not refusal("bridge"):
        for number, bridge in enumerate(config.bridges):
            if bridge.tls and not isinstance(bridge.tls, bool):
                try:
                    client_context(bridge.tls.ca_file, bridge.tls.cert_file, bridge.tls.key_file, bridge.tls.insecure)
                except TlsConfigError as error:
                    yield Problem(f"bridges[{number}].tls", f": {error}")
    if config.dynamic_security is not None:
        yield from _dynamic_security_problems(config.dynamic_security, config.data_dir)
    for each in turned_on(config):
        if each.file_problems:
            yield from resolve(each.file_problems)(config)


def _data_dir_problems(data_dir: str | None) -> Iterator[Problem]:
    if data_dir:
        reason = why_unwritable(Path(data_dir))
        if reason:
            is_default = data_dir == str(default_data_dir(os.environ))
            advice = "; it is the default: name another with data_dir or --data-dir" if is_default else ""
            yield Problem("data_dir", f": {reason}{advice}")


def _dynamic_security_problems(options: DynamicSecurityOptions, data_dir: str | None) -> Iterator[Problem]:
    path = path_of(options, data_dir)
    if options.file is not None and not Path(options.file).parent.is_dir():
        yield Problem("dynamic_security.file", f": there is no folder {Path(options.file).parent}")
    elif options.file is not None and (reason := why_unwritable(Path(options.file).parent)):
        yield Problem("dynamic_security.file", f": commands change the file, and they could not: {reason}")
    elif path is not None and path.exists():  # else the first start makes it
        try:
            load_dynamic_security(path)
        except DynamicSecurityError as error:
            yield Problem("dynamic_security.file", f": {error}")


def _listener_problems(path: str, listener: ListenerOptions) -> Iterator[Problem]:
    if listener.password_file is not None:
        yield from _password_problems(f"{path}.password_file", listener.password_file)
    if listener.tls is not None:
        try:
            server_context(listener.tls)
        except TlsConfigError as error:
            yield Problem(f"{path}.tls.{error.option}", f": {error}")
    if listener.path is not None:
        problem = _socket_problem(Path(listener.path))
        if problem:
            yield Problem(f"{path}.path", f": {problem}")


def _password_problems(option: str, path: str) -> Iterator[Problem]:
    try:
        load_users(path)
    except PasswordFileError as error:
        yield Problem(option, f": {error}")


def _acl_problems(path: str) -> Iterator[Problem]:
    try:
        load_acl(path)
    except AclFileError as error:
        for problem in error.problems:
            yield Problem("acl_file", f": {problem}")


def _socket_problem(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path}: the folder {folder} does not exist; make it, or choose another path"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{path}: this user may not write to the folder {folder}"
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        return f"{path}: there is a file which is not a socket; choose another path, or remove it"
    return ""


# ── warnings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def warnings(config: Config) -> Iterator[str]:
    """Sentences about settings that work but are probably unintended."""
    for name, listener in zip(config.listener_names(), config.listeners, strict=True):
        yield from _listener_warnings(config, name, listener)
    if config.allow_anonymous and not any(
        listener.authentication is not None or config.login_methods(listener) or is_open(config, listener)
        for listener in config.listeners
    ):
        yield "allow_anonymous has no effect without a password_file: every client is let in anyway"

    if config.http_auth is not None and not config.http_auth.is_private:
        yield "http_auth.url sends passwords over the network without encryption; use https://"


def http_warnings(config: Config, must_log_in: bool) -> Iterator[str]:
    """The same for the gateway. A running broker logs them when it opens its port."""
    if config.http is None or is_loopback(config.http.host):
        return
    where = in_words(config.http.host)
    if not must_log_in:
        yield f"http is open to the network, on {where}: everybody who reaches it may publish and subscribe"
    elif config.http.tls is None:
        yield f"http on {where} takes passwords and tokens without encryption; give it a section tls"


def metrics_warnings(config: Config) -> Iterator[str]:
    """The same for the port of `[metrics]`. A running broker logs them when it opens that port."""
    if config.metrics is not None and not is_loopback(config.metrics.host):
        yield (
            f"metrics, health and status are served on {in_words(config.metrics.host)}: there is no password, and they "
            "show which clients are connected"
        )


def certificate_warnings(config: Config) -> Iterator[str]:
    """The same for TLS files. A running broker logs them when it reads the files, and then daily."""
    for name, listener in zip(config.listener_names(), config.listeners, strict=True):
        if listener.tls is not None:
            yield from expiry_warnings(name, ends_of(listener.tls))


def _listener_warnings(config: Config, name: str, listener: ListenerOptions) -> Iterator[str]:
    if is_open(config, listener):
        yield (
            f"listener {name} is open to the network, on {in_words(listener.host)}: everybody who reaches it may "
            'publish and subscribe; set a password_file, or host = "127.0.0.1"'
        )
    elif listener.path is None and listener.host == "":
        yield f'listener {name} listens on {in_words("")}; write host = "127.0.0.1" if only this machine is meant'
    is_clear = listener.path is None and listener.tls is None and not is_loopback(listener.host)
    if is_clear and config.login_methods(listener):
        yield f"listener {name} takes passwords over the network without encryption; give it a section tls"
    if listener.max_half_open is not None and listener.max_half_open > listener.max_connections:
        yield f"listener {name}: max_half_open is above max_connections and has no effect"
    if listener.capabilities.server_moved and not listener.capabilities.server_reference:
        yield f"listener {name}: capabilities.server_moved has no effect without capabilities.server_reference"


def is_open(config: Config, listener: ListenerOptions) -> bool:
    """Whether a listener is open to the network without authentication."""
    return (
        listener.path is None
        and not is_loopback(listener.host)
        and not (listener.tls is not None and listener.tls.client_certificate_mode == "required")
        and config.lets_anybody_in(listener)
    )


def is_refused(config: Config, listener: ListenerOptions) -> bool:
    """Whether a listener is open although the config does not allow it."""
    return is_open(config, listener) and not config.passwords_of(listener)[1]


def answers_anybody(config: Config) -> bool:
    """Whether the gateway answers requests without credentials according to the config. A program may add an
    authenticator."""
    listener = config.http_listener()
    if listener is None:
        return False
    is_left_open = listener.allow_anonymous is None and is_loopback(listener.host)
    return config.passwords_of(listener)[1] or (is_left_open and not config.login_methods(listener))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    return host.startswith("127.") or host in ("localhost", "::1")


def lets_bridges(config: Config) -> bool:
    """Whether clients may publish the state of a bridge where no rule is about it."""
    if config.sys.bridges is not None:
        return config.sys.bridges
    return all(each.path is not None or is_loopback(each.host) for each in config.listeners)


def in_words(host: str) -> str:
    """A host to listen on, in words if it stands for many addresses."""
    return _EVERY_ADDRESS.get(host, host)


def address_problems(config: Config) -> Iterator[Problem]:
    """Hosts that cannot be listened on. Looks up names, which may take seconds."""
    hosts = [(f"listeners[{n}].host", each.host) for n, each in enumerate(config.listeners) if each.path is None]
    if config.metrics is not None:
        hosts.append(("metrics.host", config.metrics.host))
    if config.http is not None:
        hosts.append(("http.host", config.http.host))
    for path, host in hosts:
        problem = _host_problem(host)
        if problem:
            yield Problem(path, f" is {host!r}: {problem}")


def _host_problem(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if "://" in host:
        return "an address or a host name is meant, not a URL"
    if colon and port.isdecimal() and (":" not in name or name.endswith("]")):
        return f'write host = "{name.strip("[]")}" and port = {port}'
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
    except socket.gaierror as error:
        return f"the name cannot be resolved ({error.strerror})"
    except (OSError, UnicodeError) as error:
        return f"this machine has no such address ({getattr(error, 'strerror', None) or error})"
    return ""
