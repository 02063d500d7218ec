"""`mqttlite acl test`: what the rules say of one client and one topic, and in which line.

The verdict is that of `security.rules`. Invariant: it is the one that a broker with the same files gives.
"""

import json
import sys
from typing import Final

import click

from mqttlite.config import Config, ConfigError, load_config
from mqttlite.core.authentication import Grants
from mqttlite.core.authorizer import PUBLISH, RECEIVE, SUBSCRIBE, DefaultRules
from mqttlite.security.acl_file import AclFileError, load
from mqttlite.security.rules import Rules
from mqttlite.topics.names import check_filter, check_name
from mqttlite.topics.namespaces import check_is_served, parse_filter
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

EXIT_DENIED: Final = 1

_ACTIONS: Final = {"read": RECEIVE, "write": PUBLISH, "subscribe": SUBSCRIBE}


@click.group(name="acl", context_settings={"help_option_names": ["--help"]})
def command() -> None:
    """Ask the rules of an ACL file and of topic policies."""


@command.command(
    epilog="Exit codes: 0, allowed; 1, denied; 2, wrong usage or a wrong file.",
    context_settings={"help_option_names": ["--help"]},
)
@click.option("-u", "--user", metavar="NAME", help="The user; without it the client is anonymous.")
@click.option("-i", "--client-id", metavar="ID", default="test", show_default=True, help="For patterns with %c.")
@click.option("-g", "--group", "groups", metavar="NAME", multiple=True, help="A group of the user; may be repeated.")
@click.option("-c", "--config", "config_path", metavar="FILE.toml", help="The configuration with the rules.")
@click.option("--acl-file", metavar="FILE", help="An ACL file, in place of that of a configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.argument("action", type=click.Choice(tuple(_ACTIONS)))
@click.argument("topic")
def test(
    user: str | None,
    client_id: str,
    groups: tuple[str, ...],
    config_path: str | None,
    acl_file: str | None,
    as_json: bool,
    action: str,
    topic: str,
) -> None:
    """Say whether a client may read, write or subscribe to TOPIC, and which rule decides.

    "read" is about messages of a topic, "subscribe" about a topic filter: a SUBSCRIBE is let in if the client may read
    any topic that the filter matches.
    """
    if config_path is None and acl_file is None:
        raise click.UsageError("Which rules? Name a configuration with -c, or a file with --acl-file.")
    try:
        config = Config() if config_path is None else load_config(config_path)
        if config.dynamic_security is not None and acl_file is None:
            raise click.UsageError("Dynamic security decides there: ask the broker, with 'mosquitto_ctrl dynsec'.")
        rules = rules_of(config, acl_file)
        name = _checked(action, topic)
    except (ConfigError, AclFileError) as error:
        raise click.UsageError("\n".join(error.problems)) from None
    except (TopicFilterInvalid, TopicNameInvalid) as error:
        raise click.UsageError(f"{error}.") from None
    core_rules = DefaultRules(frozenset(config.sys.publishers), rules)
    grants = Grants(frozenset(groups))
    role = core_rules.role_of(client_id, user, grants)
    is_allowed = {
        "read": core_rules.may_receive,
        "write": core_rules.may_publish,
        "subscribe": core_rules.may_subscribe,
    }[action](role, name)
    ruling = rules.ruling(rules.role_of(client_id, user, grants), _ACTIONS[action], name)
    if ruling.is_allowed != is_allowed:  # the core's own rules, about $SYS
        line, reason = 0, "default: only the broker publishes to $SYS and below" if not is_allowed else "sys.publishers"
    else:
        line, reason = ruling.line, ruling.reason
    if as_json:
        path = None if rules.acl is None or not line else rules.acl.path
        verdict = {"allowed": is_allowed, "action": action, "topic": topic, "user": user, "client_id": client_id}
        click.echo(json.dumps({**verdict, "file": path, "line": line or None, "reason": reason}, ensure_ascii=False))
    else:
        click.echo(f"{'allowed' if is_allowed else 'denied'} by {reason}")
    sys.exit(0 if is_allowed else EXIT_DENIED)


def rules_of(config: Config, acl_file: str | None = None) -> Rules:
    """The rules of a configuration, with another ACL file where one is named. Raises `AclFileError`."""
    path = config.acl_file if acl_file is None else acl_file
    return Rules(None if path is None else load(path), config.topic_policies, config.groups)


def _checked(action: str, topic: str) -> bytes:
    """The topic in bytes. Raises `TopicFilterInvalid` and `TopicNameInvalid` for one that no client can use."""
    name = topic.encode(errors="replace")
    if action == "subscribe":
        check_filter(name)
        parse_filter(name)
    else:
        check_name(name)
        check_is_served(name)
    return name
