"""`mqttlite acl test`: what the rules say of one client and one topic, and in which line.

The rules are those of `configured`. Invariant: it is the one that a broker with the same files gives.
"""

import json
import sys
from typing import Final, NoReturn

import click

from mqttlite.cli.ask_admin import TIMEOUT_S, asker_of
from mqttlite.cli.ask_options import data_dir_option, is_from_environment, timeout_option, url_options
from mqttlite.cli.configured import ConfiguredRules, made_topics, rules_of
from mqttlite.config import Config, ConfigError, load_config
from mqttlite.core.authentication import Grants
from mqttlite.core.authorizer import PUBLISH, RECEIVE, SUBSCRIBE
from mqttlite.extensions.built_in import BUILT_IN, resolve
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.security.acl_file import AclFileError
from mqttlite.security.default_rules import is_bridge_state
from mqttlite.security.rules import Ruling
from mqttlite.topics.names import check_filter, check_name, is_own, matches
from mqttlite.topics.namespaces import split_share
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

EXIT_DENIED: Final = 1

_ACTIONS: Final = {"read": RECEIVE, "write": PUBLISH, "subscribe": SUBSCRIBE}


@click.group(name="acl")
def command() -> None:
    """Ask the rules of an ACL file, of topic policies and of dynamic security."""


@command.command(
    epilog="Exit codes: 0, allowed; 1, denied; 2, wrong usage or a wrong file.",
)
@click.option("-u", "--user", metavar="NAME", help="The user; without it the client is anonymous.")
@click.option("-i", "--client-id", metavar="ID", default="test", show_default=True, help="For patterns with %c.")
@click.option("-g", "--group", "groups", metavar="NAME", multiple=True, help="A group of the user; may be repeated.")
@click.option("-c", "--config", "config_path", metavar="FILE.toml", help="The configuration with the rules.")
@data_dir_option()
@url_options()
@timeout_option(TIMEOUT_S)
@click.option("--acl-file", metavar="FILE", help="An ACL file, in place of that of a configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.argument("action", type=click.Choice(tuple(_ACTIONS)))
@click.argument("topic")
def test(
    user: str | None,
    client_id: str,
    groups: tuple[str, ...],
    config_path: str | None,
    data_dir: str | None,
    url: str | None,
    token: str | None,
    ca_file: str | None,
    timeout_s: float,
    acl_file: str | None,
    as_json: bool,
    action: str,
    topic: str,
) -> None:
    """Say whether a client may read, write or subscribe to TOPIC, and which rule decides.

    "read" is about messages of a topic, "subscribe" about a topic filter: a SUBSCRIBE is let in if the client may read
    any topic that the filter matches. With -c or --acl-file the rules are read from files; with --data-dir or --url a
    running broker is asked.
    """
    by_files = config_path is not None or acl_file is not None
    if by_files and url is not None and is_from_environment("url"):
        url = None
    if by_files and (data_dir is not None or url is not None):
        raise click.UsageError("Ask files with -c and --acl-file, or a broker with --data-dir or --url, not both.")
    if not by_files:
        if data_dir is None and url is None:
            raise click.UsageError(
                "Which rules? Name a configuration with -c, a file with --acl-file, or a running broker with "
                "--data-dir or --url."
            )
        found = asker_of(data_dir, url, token, ca_file, timeout_s).ask(
            *("GET", "explain", "permission"),
            action=_ACTIONS[action],
            topic=topic,
            user=user,
            client_id=client_id,
            groups=list(groups),
        )
        reason = found["reason"].removeprefix("allowed by ").removeprefix("denied by ")
        _show(Ruling(found["is_allowed"], 0, reason), None, as_json, action, topic, user, client_id)
    try:
        config = Config() if config_path is None else load_config(config_path)
        rules = rules_of(config, acl_file, () if config_path is None else made_topics(config))
        name = _checked(action, topic)
    except (ConfigError, AclFileError) as error:
        raise click.UsageError("\n".join(error.problems)) from None
    except (TopicFilterInvalid, TopicNameInvalid) as error:
        raise click.UsageError(f"{error}.") from None
    found = verdict(rules, client_id, user, Grants(frozenset(groups)), _ACTIONS[action], name)
    path = rules.files.acl.path if found.line and rules.files is not None and rules.files.acl is not None else None
    _show(found, path, as_json, action, topic, user, client_id)


def _show(
    found: Ruling, path: str | None, as_json: bool, action: str, topic: str, user: str | None, client_id: str
) -> NoReturn:
    """Print the verdict, and exit."""
    if as_json:
        about = {"allowed": found.is_allowed, "action": action, "topic": topic, "user": user, "client_id": client_id}
        answer = {**about, "file": path, "line": found.line or None, "reason": found.reason}
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        click.echo(f"{'allowed' if found.is_allowed else 'denied'} by {found.reason}")
    sys.exit(0 if found.is_allowed else EXIT_DENIED)


def verdict(
    rules: ConfiguredRules, client_id: str, user: str | None, grants: Grants, action: str, topic: bytes
) -> Ruling:
    """The verdict of the rules on a client; the line is that of the ACL file, if that decides."""
    core = rules.core
    role = core.role_of(client_id, user, grants)
    asked = {PUBLISH: core.may_publish, RECEIVE: core.may_receive, SUBSCRIBE: core.may_subscribe}
    is_open = core.is_open(topic) if action == PUBLISH else action == RECEIVE and core.is_readable(topic)
    is_allowed = is_open or asked[action](role, topic)
    if action == PUBLISH and is_own(topic) and not is_bridge_state(topic):
        reason = "sys.publishers" if is_allowed else "default: only the broker publishes to $SYS and below"
        return Ruling(is_allowed, 0, reason)
    reason = core.reason(role, action, topic).removeprefix("allowed by ").removeprefix("denied by ")
    line = 0
    if rules.files is not None:
        ruling = rules.files.ruling(rules.files.role_of(client_id, user, grants), action, topic)
        line = ruling.line if ruling.reason in reason else 0
    return Ruling(is_allowed, line, reason or "default: there are no rules")


def _checked(action: str, topic: str) -> bytes:
    """The topic in bytes. Raises `TopicFilterInvalid` and `TopicNameInvalid` for one that no client can use."""
    name = topic.encode(errors="replace")
    if action == "subscribe":
        check_filter(name)
        split_share(name)
    else:
        check_name(name)
        served = [each for manifest in BUILT_IN.values() if manifest.served for each in resolve(manifest.served)]
        if not any(matches(each, name) for each in served):
            NAMESPACES.check_is_served(name)
    return name
