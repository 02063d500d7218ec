"""`serve --check` and `config check`: print everything that is wrong with a configuration, or what it does. And
`mqttlite check`, which also explains who may do what.

`config` finds mistakes, `explain_rules` odd permissions. Invariants: nothing is changed, and no port is listened on.
What is printed is printable: it quotes files and servers.
"""

import asyncio
import errno
import sys
from collections.abc import Callable, Iterator

import click

from mqttlite.cli.configured import directory_of, made_schemas, made_topics, rules_of
from mqttlite.cli.explain_rules import EVERYTHING, SOME, findings, permissions
from mqttlite.cli.serve_flags import Flags
from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.config.checks import (
    address_problems,
    answers_anybody,
    certificate_warnings,
    conflicts,
    file_problems,
    in_words,
    metrics_warnings,
    open_listeners,
    warnings,
)
from mqttlite.config.file import new_problems, read_file
from mqttlite.config.shape import Problem
from mqttlite.extensions.built_in import resolve, turned_on
from mqttlite.net.endpoints import try_port
from mqttlite.security.one_line import one_line, printable

EXIT_FINDINGS = 1
EXIT_WRONG = 2

_TRANSPORTS = {
    "tcp": "MQTT over TCP",
    "tls": "MQTT over TLS",
    "ws": "MQTT over WebSocket",
    "wss": "MQTT over WebSocket and TLS",
    "unix": "MQTT over a Unix socket",
}


Check = Callable[[Config], Iterator[Problem]]


def read_config(path: str | None, flags: Flags, *more_checks: Check) -> tuple[Config, Config | None]:
    """The config of a file and flags, and that of the file alone. Raises `ConfigError` with all that is wrong."""
    problems: list[str] = []
    reading = None
    try:
        reading = None if path is None else read_file(path)
        if reading is not None:
            problems += reading.sentences(reading.problems)
    except ConfigError as error:
        problems += error.problems
    file = None if reading is None else reading.config
    config = file or Config()
    try:
        config = flags.apply(config)
        if path is None or file is not None:
            known = [] if reading is None else reading.problems
            checks: tuple[Check, ...] = (conflicts, open_listeners, file_problems, extension_problems, *more_checks)
            found = dict.fromkeys(each for check in checks for each in check(config))
            problems += flags.named(new_problems(known, found), reading)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return config, file


def extension_problems(config: Config) -> Iterator[Problem]:
    """The extensions of a config that are not there, or have wrong options. Imports their modules."""
    if not config.extensions:
        return
    from mqttlite.extensions.load import ExtensionError, check  # here, for it needs much of the broker

    for number, options in enumerate(config.extensions):
        try:
            check(options)
        except ExtensionError as error:
            yield Problem(f"extensions[{number}].{error.place}", error.text)


def servers_found(config: Config) -> list[str]:
    """What does not work now at the servers that the extensions of a config need. Raises `ConfigError` for those with
    which no broker would start."""
    looks = [resolve(each.look) for each in turned_on(config) if each.look]

    async def look() -> list[str]:
        return [sentence for each in looks for sentence in await each(config)]

    return asyncio.run(look()) if looks else []


@click.command(
    name="check",
    epilog="Exit codes: 0, nothing to mend; 1, it works, and something is weak or odd; 2, something is wrong.",
)
@click.option("--all", "lists_all", is_flag=True, help="List every user, group, policy and topic filter.")
@click.argument("file", metavar="FILE.toml")
def command(file: str, lists_all: bool) -> None:
    """Explain who reaches which listener and may publish and read what, and what is weak or odd about it.

    Also found are rules that decide nothing, denials that do not hold, and listeners that let anybody in.
    """
    try:
        config, _ = read_config(file, Flags(), address_problems)
        topics = made_topics(config)
        made_schemas(directory_of(config))
        rules = rules_of(config, topics=topics)
        servers = servers_found(config)
    except ConfigError as error:
        _show_problems(error)
        sys.exit(EXIT_WRONG)
    acl = None if rules.files is None else rules.files.acl
    dynamic = None if rules.dynamic is None else rules.dynamic.state
    click.echo(f"{file} is right. A broker would serve:")
    for line in _served(config):
        click.echo(f"  {printable(line)}")
    click.echo("Clients may do:")
    for line in permissions(config, acl, dynamic, topics, EVERYTHING if lists_all else SOME):
        click.echo(f"  {printable(line)}")
    weak = (*warnings(config), *metrics_warnings(config), *servers, *findings(config, acl, dynamic))
    found = list(dict.fromkeys(weak))
    for sentence in found:
        click.echo(f"warning: {one_line(sentence)}", err=True)
    click.echo(f"{len(found)} warning{'s' * (len(found) != 1)}.", err=True)
    sys.exit(EXIT_FINDINGS if found else 0)


def _show_problems(error: ConfigError) -> None:
    for problem in error.problems:
        click.echo(problem, err=True)
    count = len(error.problems)
    click.echo(f"{count} problem{'s' * (count > 1)}: a broker would not start.", err=True)


def check_config(path: str | None, flags: Flags) -> int:
    """Print what is wrong, or what a broker would do; the exit code."""
    try:
        config, _ = read_config(path, flags, address_problems)
        made_topics(config)
        made_schemas(directory_of(config))
        servers = servers_found(config)
    except ConfigError as error:
        _show_problems(error)
        return EXIT_WRONG
    click.echo(f"{'The flags are' if path is None else f'{path} is'} right. A broker would serve:")
    for line in _served(config):
        click.echo(f"  {printable(line)}")
    for sentence in (
        *warnings(config),
        *certificate_warnings(config),
        *metrics_warnings(config),
        *servers,
        *_ports_in_use(config),
    ):
        click.echo(f"warning: {one_line(sentence)}", err=True)
    return 0


def _served(config: Config) -> Iterator[str]:
    for name, listener in zip(config.listener_names(), config.listeners, strict=True):
        where = listener.path or f"port {listener.port} of {in_words(listener.host)}"
        below = f", below {listener.mount_point}" if listener.mount_point else ""
        yield f"{_TRANSPORTS[listener.transport()]} on {where}, for {_clients(config, listener)}{below} ({name})"
    if config.data_dir:
        yield f"sessions, queued and retained messages kept in {config.data_dir}"
    if config.metrics is not None:
        yield f"metrics, health and status on port {config.metrics.port} of {in_words(config.metrics.host)}"
    gateway = config.http_listener()
    if config.http is not None and gateway is not None:
        scheme = "HTTP" if config.http.tls is None else "HTTPS"
        below = f", below {config.http.mount_point}" if config.http.mount_point else ""
        where = f"port {gateway.port} of {in_words(gateway.host)}"
        yield f"the gateway over {scheme} on {where}, for {_callers(config, gateway)}{below} (http)"
    if config.telemetry is not None:
        yield f"telemetry into {config.telemetry.directory}"
    if config.delivery_log is not None:
        yield "a delivery log for 'mqttlite why'"
    for options in config.extensions:
        yield f"your extension {options.use}"


def _clients(config: Config, listener: ListenerOptions) -> str:
    """The clients that a listener serves."""
    known = _known(config, listener)
    return _listed(known) if known else "everybody"


def _callers(config: Config, gateway: ListenerOptions) -> str:
    """The callers that the gateway serves."""
    known = _known(config, gateway)
    return "everybody" if not known and answers_anybody(config) else _listed(["callers with an API key", *known])


def _known(config: Config, listener: ListenerOptions) -> list[str]:
    """The users that may log in at a listener; none if it asks for no login."""
    passwords, anonymous = config.passwords_of(listener)
    words = {
        "password": f"users of {passwords}",
        "jwt": "clients with a token",
        "dynamic_security": "users of dynamic security",
        "http": f"clients that {config.http_auth.url if config.http_auth else ''} accepts",
        "certificate": "clients with a certificate",
    }
    known = [words[method] for method in config.login_methods(listener)]
    return [*known, "anonymous clients"] if known and anonymous else known


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _ports_in_use(config: Config) -> Iterator[str]:
    """Ports on which a program listens now: it may be the broker that runs with this configuration."""
    taken = [(each.host, each.port, each.reuse_port) for each in config.listeners if each.path is None]
    if config.metrics is not None:
        taken.append((config.metrics.host, config.metrics.port, False))
    if config.http is not None:
        taken.append((config.http.host, config.http.port, False))
    for host, port, reuses in taken:
        try:
            try_port(host, port, reuses)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                yield f"port {port} of {in_words(host)} is in use now; does the broker run already?"
            else:
                yield f"port {port} of {in_words(host)} cannot be listened on: {error.strerror or error}"
