"""`mqttlite topics ls`, `new`, `rm`, `subscribers`: the topics made over HTTP, with owners and policies.

What is asked is in `asker`: the admin socket has no topics. Invariant: topics are named by their ids.
"""

from typing import Any, Final, get_args

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    limit_option,
    note_more,
    print_json,
    print_table,
    remote_options,
    time_of,
)
from mqttlite.security.topic_policies import Access, TopicClass

_HEADER: Final = ("ID", "NAME", "OWNER", "PERMISSIONS", "SUBSCRIBERS", "CREATED")
_SUBSCRIBERS_HEADER: Final = ("CLIENT", "USER", "CONNECTED")


def _remote(client: Asker) -> Asker:
    if not client.is_remote:
        raise click.UsageError("topics are asked for over HTTP: name the broker's gateway with --url or MQTTLITE_URL")
    return client


@click.command("ls", epilog=EPILOG)
@limit_option(100)
@remote_options
def list_topics(limit: int, as_json: bool, client: Asker) -> None:
    """List the topics that the caller may see, by name."""
    found = _remote(client).page("topics", limit=limit, of="topics")
    if as_json:
        print_json(found)
        return
    print_table(_HEADER, [_row(each) for each in found["entries"]])
    note_more(found, limit)


@click.command("new", epilog=EPILOG)
@click.argument("name")
@click.option("--permissions", type=click.Choice(get_args(Access)), help="What others may do.  [default: PUBLIC]")
@click.option("--member", "members", metavar="USER", multiple=True, help="Who else may publish and subscribe.")
@click.option("--class", type=click.Choice(get_args(TopicClass)), help="What is kept of it.  [default: standard]")
@click.option("--ttl", "ttl_s", type=int, metavar="SECONDS", help="How long its messages wait at most.")
@click.option("--min-qos", type=int, metavar="QOS", help="Refuse messages below this QoS.")
@click.option("--max-qos", type=int, metavar="QOS", help="Deliver messages at this QoS at most.")
@click.option("--max-payload-bytes", type=int, metavar="N", help="Refuse messages with a larger payload.")
@click.option("--presence", is_flag=True, default=None, help="Let the broker say who subscribes to it.")
@click.option("--tell-publisher", is_flag=True, default=None, help="Tell all subscribers who published.")
@click.option(
    "--message-retention-days",
    type=int,
    metavar="DAYS",
    help="How long new subscriptions keep what nobody acknowledges.  [default: 7]",
)
@click.option("--description", metavar="TEXT", help="For people.")
@click.option("--schema", metavar="SUBJECT[:VERSION]", help="What payloads must be.")
@remote_options
def new(name: str, as_json: bool, client: Asker, **given: Any) -> None:
    """Make a topic; the caller becomes its owner. Prints its id."""
    given["members"] = list(given["members"]) or None
    body = {"name": name} | {key: value for key, value in given.items() if value is not None}
    found = _remote(client).ask("POST", "topics", body=body)
    if as_json:
        print_json(found)
    else:
        click.echo(found["topic_id"])


@click.command("rm", epilog=EPILOG)
@click.argument("topic_id", metavar="ID")
@remote_options
def remove(topic_id: str, as_json: bool, client: Asker) -> None:
    """Forget a topic; messages of its name go on as if nobody had made it."""
    found = _remote(client).ask("DELETE", "topics", topic_id)
    if as_json:
        print_json(found)
    else:
        click.echo(f"Topic {topic_id} is forgotten.")


@click.command("subscribers", epilog=EPILOG)
@click.argument("topic_id", metavar="ID")
@limit_option(100)
@remote_options
def subscribers(topic_id: str, limit: int, as_json: bool, client: Asker) -> None:
    """List the subscribers of a topic; for its owner, and viewers."""
    found = _remote(client).page("topics", topic_id, "subscribers", limit=limit, of="subscribers")
    if as_json:
        print_json(found)
        return
    print_table(_SUBSCRIBERS_HEADER, [_subscriber(each) for each in found["entries"]])
    note_more(found, limit)


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


COMMANDS: Final = (list_topics, new, remove, subscribers)
"""Of the group `mqttlite topics`."""
