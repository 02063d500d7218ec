"""`mqttlite topics ls`, `new`, `set`, `members`, `rm`, `subscribers`: the topics made over HTTP, with their policies.

The requests are in `asker`: the admin socket has no topics. Invariant: topics are named by their ids.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, get_args

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    limit_option,
    print_answer,
    print_page,
    print_sentence,
    print_table,
    remote_options,
    time_of,
)
from mqttlite.security.topic_policies import Access, TopicClass

F = TypeVar("F", bound=Callable[..., Any])

_HEADER: Final = ("ID", "NAME", "OWNER", "PERMISSIONS", "SUBSCRIBERS", "CREATED")
_MEMBERS_HEADER: Final = ("NAME", "KIND")
_SUBSCRIBERS_HEADER: Final = ("CLIENT", "USER", "CONNECTED")


def _remote(client: Asker) -> Asker:
    if not client.is_remote:
        raise click.UsageError("topics are asked for over HTTP: name the broker's gateway with --url or MQTTLITE_URL")
    return client


_OPTIONS: Final = (
    click.option(
        "--permissions", type=click.Choice(get_args(Access)), help="The permissions of others.  [default: PUBLIC]"
    ),
    click.option(
        "--class",
        type=click.Choice(get_args(TopicClass)),
        help="Its class, which says what is kept.  [default: standard]",
    ),
    click.option("--ttl", "ttl_s", type=int, metavar="SECONDS", help="How long its messages wait at most."),
    click.option("--min-qos", type=int, metavar="QOS", help="Refuse messages below this QoS."),
    click.option("--max-qos", type=int, metavar="QOS", help="Deliver messages at this QoS at most."),
    click.option("--max-payload-bytes", type=int, metavar="N", help="Refuse messages with a larger payload."),
    click.option("--presence/--no-presence", default=None, help="Let the broker say who subscribes to it."),
    click.option("--tell-publisher/--no-tell-publisher", default=None, help="Tell all subscribers who published."),
    click.option(
        "--message-retention-days",
        type=int,
        metavar="DAYS",
        help="How long new subscriptions keep unacknowledged messages.  [default: 7]",
    ),
    click.option("--description", metavar="TEXT", help="For people."),
    click.option("--schema", metavar="SUBJECT[:VERSION]", help="The schema of its payloads."),
)
"""The options of a topic beside its name and members."""


def _described(command: F) -> F:
    for each in reversed(_OPTIONS):
        command = each(command)
    return command


@click.command("ls", epilog=EPILOG)
@limit_option(100)
@remote_options
def list_topics(limit: int, as_json: bool, client: Asker) -> None:
    """List the topics that the caller may see, by name."""
    found = _remote(client).page("topics", limit=limit, of="topics")
    print_page(found, as_json, limit, _HEADER, _row)


@click.command("new", epilog=EPILOG)
@click.argument("name")
@click.option(
    "--member",
    "members",
    metavar="USER",
    multiple=True,
    help="Another user that may publish and subscribe; repeatable.",
)
@click.option("--group", "groups", metavar="GROUP", multiple=True, help="A group of the configuration that may, too.")
@_described
@remote_options
def new(name: str, as_json: bool, client: Asker, **given: Any) -> None:
    """Make a topic; the caller becomes its owner. Prints its id."""
    for names in ("members", "groups"):
        given[names] = list(given[names]) or None
    body = {"name": name} | {key: value for key, value in given.items() if value is not None}
    found = _remote(client).ask("POST", "topics", body=body)
    print_sentence(found, as_json, found["topic_id"])


@click.command("set", epilog=EPILOG)
@click.argument("topic_id", metavar="ID")
@_described
@remote_options
def change(topic_id: str, as_json: bool, client: Asker, **given: Any) -> None:
    """Change a topic: what is not given stays. For its owner, and admins."""
    changes = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("Change what? Give an option.")
    found = _remote(client).ask("PATCH", "topics", topic_id, body=changes)
    print_sentence(found, as_json, f"Topic {topic_id} is changed.")


@click.command("members", epilog=EPILOG)
@click.argument("topic_id", metavar="ID")
@click.option("--add", metavar="USER", multiple=True, help="Let a user publish and subscribe, too.")
@click.option("--remove", metavar="USER", multiple=True, help="Do so no more.")
@click.option("--add-group", metavar="GROUP", multiple=True, help="Let a group of the configuration do so.")
@click.option("--remove-group", metavar="GROUP", multiple=True, help="Do so no more.")
@remote_options
def members(
    topic_id: str,
    add: tuple[str, ...],
    remove: tuple[str, ...],
    add_group: tuple[str, ...],
    remove_group: tuple[str, ...],
    as_json: bool,
    client: Asker,
) -> None:
    """Add and remove members and groups of a topic, and list those it has then."""
    asker = _remote(client)
    for method, kind, names in (
        ("PUT", "members", add),
        ("DELETE", "members", remove),
        ("PUT", "groups", add_group),
        ("DELETE", "groups", remove_group),
    ):
        for name in names:
            asker.ask(method, "topics", topic_id, kind, name)
    found = asker.ask("GET", "topics", topic_id, "members")
    rows = [(name, "user") for name in found["members"]] + [(name, "group") for name in found["groups"]]
    print_answer(found, as_json, lambda: print_table(_MEMBERS_HEADER, rows))


@click.command("rm", epilog=EPILOG)
@click.argument("topic_id", metavar="ID")
@remote_options
def remove(topic_id: str, as_json: bool, client: Asker) -> None:
    """Forget a topic; its messages go on as if it had not been made."""
    found = _remote(client).ask("DELETE", "topics", topic_id)
    print_sentence(found, as_json, f"Topic {topic_id} is forgotten.")


@click.command("subscribers", epilog=EPILOG)
@click.argument("topic_id", metavar="ID")
@limit_option(100)
@remote_options
def subscribers(topic_id: str, limit: int, as_json: bool, client: Asker) -> None:
    """List the subscribers of a topic; for its owner, and viewers."""
    found = _remote(client).page("topics", topic_id, "subscribers", limit=limit, of="subscribers")
    print_page(found, as_json, limit, _SUBSCRIBERS_HEADER, _subscriber)


def _row(topic: dict[str, Any]) -> tuple[object, ...]:
    return (
        topic["topic_id"],
        topic["name"],
        topic["owner_id"] or "-",
        topic["permissions"],
        topic["subscriber_count"],
        time_of(topic["created_at"]),
    )


def _subscriber(each: dict[str, Any]) -> tuple[object, ...]:
    return each["client_id"], each["user_id"] or "-", "yes" if each["connection_id"] is not None else "no"


COMMANDS: Final = (list_topics, new, change, members, remove, subscribers)
"""Of the group `mqttlite topics`."""
