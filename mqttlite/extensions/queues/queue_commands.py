"""`mqttlite queue`: the queues of a running broker: list, make, look at, push, purge, pause, seek and delete them.

What is asked is in `ask_admin`; `mqttlite sessions` has the messages that wait for one client. Invariant: `ls`, `show`
and `peek` change nothing.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    EVERYTHING,
    Asker,
    confirm,
    counted,
    note,
    print_answer,
    print_entries,
    print_json,
    print_sentence,
    print_table,
    remote_options,
    yes_option,
)
from mqttlite.cli.asker import PAGE
from mqttlite.cli.listing_group import ListingGroup
from mqttlite.cli.session_queue import preview

F = TypeVar("F", bound=Callable[..., Any])

_HEADER: Final = ("NAME", "DEPTH", "LEASED", "SCHEDULED", "OLDEST", "CONSUMERS", "DEAD-LETTERS", "STATE", "FILTERS")
_SNAPSHOTS: Final = ("SNAPSHOT", "QUEUE", "MESSAGES", "CREATED", "EXPIRES")
_PEEKED: Final = ("MESSAGE-ID", "PUBLISHED", "BYTES", "TOPIC", "PAYLOAD")


def push_options(function: F) -> F:
    """The options of a push target."""
    for option in (
        click.option(
            "--push-wrapper/--push-no-wrapper",
            default=None,
            help="Push Google's JSON with the message in it, or the payload alone.  [default: the former]",
        ),
        click.option("--push-max-requests", type=int, metavar="N", help="Requests that may be open.  [default: 100]"),
        click.option("--push-secret", metavar="SECRET", help="Signs the requests: whsec_BASE64  [default: a new one]"),
        click.option("--push-url", metavar="URL", help="Push each message to this endpoint."),
    ):
        function = option(function)
    return function


@click.group(cls=ListingGroup)
def command() -> None:
    """List, make, look at, purge, pause, seek or delete queues, from which consumers of $queue/NAME are served.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@remote_options
def list_queues(as_json: bool, client: Asker) -> None:
    """List the queues with what is in them."""
    found = client.page("queues", limit=EVERYTHING)
    print_answer(found, as_json, lambda: print_entries(_HEADER, found["entries"], _row))


@command.command("create", epilog=f"{EPILOG}  4  there is a queue of that name, or too many\n")
@click.argument("name")
@click.argument("filters", nargs=-1, required=True, metavar="FILTER...")
@click.option("--filter", "filter_", metavar="EXPRESSION", help="Take only messages that pass this filter.")
@click.option("--ack-deadline", type=float, metavar="SECONDS", help="How long a consumer may have a message.")
@click.option("--allow-short-deadlines", is_flag=True, help="Allow a deadline of less than 10 seconds.")
@click.option("--max-attempts", type=int, metavar="N", help="Deliveries of a message before it is a dead letter.")
@click.option("--ack", type=click.Choice(["puback", "explicit"]), help="What acknowledges a message.")
@click.option("--retry-min", type=float, metavar="SECONDS", help="Wait after the first failed attempt.")
@click.option("--retry-max", type=float, metavar="SECONDS", help="Longest wait after a failed attempt.")
@click.option(
    "--retry-on-deadline", type=click.Choice(["back_off", "at_once"]), help="Wait after a missed deadline, too?"
)
@click.option("--ordering", is_flag=True, help="Keep the order of messages with one ordering-key.")
@click.option("--priority", is_flag=True, help="Deliver messages with a higher priority first.")
@click.option("--max-messages", type=int, metavar="N", help="Messages that the queue holds.")
@click.option("--max-bytes", type=int, metavar="N", help="Bytes that the queue holds.")
@click.option("--expiry", type=int, metavar="SECONDS", help="How long a message is kept; 0: for ever.")
@click.option("--idle-expiry", type=int, metavar="SECONDS", help="Delete the queue after this time without a consumer.")
@click.option("--max-rate", type=float, metavar="N", help="Messages that the queue delivers in a second at most.")
@click.option("--retain-acked", is_flag=True, help="Keep acknowledged messages as long as others, to seek back to.")
@click.option(
    "--on-overflow",
    type=click.Choice(["drop_newest", "drop_oldest", "dead_letter"]),
    help="What happens to one message more.",
)
@click.option(
    "--dead-letter-on",
    type=click.Choice(["filter", "expiry"]),
    multiple=True,
    help="Keep these as dead letters too: what does not pass --filter, what expires. Repeatable.",
)
@click.option("--dead-letter-topic", metavar="TOPIC", help="Publish dead letters to this topic too.")
@push_options
@remote_options
def create(name: str, filters: tuple[str, ...], as_json: bool, client: Asker, **given: Any) -> None:
    """Make the queue NAME of the messages that FILTERs match.

    With --push-url its messages are pushed to an endpoint over HTTP; else consumers get them.
    """
    push = _push_of(given, {})
    retry = {name: given.pop(f"retry_{name.removesuffix('_s')}") for name in ("min_s", "max_s", "on_deadline")}
    retry = {key: value for key, value in retry.items() if value is not None}
    if "min_s" in retry and "max_s" not in retry:
        retry["max_s"] = max(retry["min_s"], 600.0)
    if "max_s" in retry and "min_s" not in retry:
        retry["min_s"] = min(retry["max_s"], 10.0)
    given["dead_letter_on"] = list(given["dead_letter_on"]) or None
    body = {"name": name, "filters": list(filters), "retry": retry}
    names = {
        "ack_deadline": "ack_deadline_s",
        "expiry": "expiry_s",
        "idle_expiry": "idle_expiry_s",
        "filter_": "filter",
    }
    if push:
        body["push"] = push
    body |= {names.get(key, key): value for key, value in given.items() if value is not None and value is not False}
    found = client.ask("POST", "queues", body=body)
    if as_json:
        print_json(found)
    elif push:
        click.echo(f"Queue {name} made: its messages are pushed to {push['url']}.")
        _tell_secret(found.get("push_secret"))
    else:
        click.echo(f"Queue {name} made: consumers subscribe to $queue/{name}.")


@command.command("push", epilog=EPILOG)
@click.argument("name")
@push_options
@click.option("--stop", is_flag=True, help="Push no more: consumers get the messages.")
@click.option("--rotate-secret", is_flag=True, help="Sign with a new secret, and with the one before, too.")
@remote_options
def push(name: str, stop: bool, rotate_secret: bool, as_json: bool, client: Asker, **given: Any) -> None:
    """Push the messages of the queue NAME to an endpoint, or change how.

    Without options, say how it stands.
    """
    if sum((stop, rotate_secret, any(value is not None for value in given.values()))) > 1:
        raise click.UsageError("--stop, --rotate-secret and the options of a target go one by one")
    if rotate_secret:
        found = client.ask("POST", "queues", name, "push-secret")
        print_answer(found, as_json, lambda: _tell_secret(found["secret"]))
        return
    found = client.ask("GET", "queues", name)
    before = found["options"]["push"]
    target = None if stop else _push_of(given, before or {})
    if stop or target:
        found = client.ask("PUT", "queues", name, body={**found["options"], "push": target})
    if as_json:
        print_json(found)
        return
    if not found["options"]["push"]:
        click.echo(f"Queue {name} is not pushed: consumers subscribe to $queue/{name}.")
        return
    print_table(("WHAT", "VALUE"), _push_rows(found))
    _tell_secret(found.get("push_secret"))


@command.command("secret")
def secret() -> None:
    """Print a new secret for `push.secret` of a queue in the configuration. It asks no broker."""
    from mqttlite.extensions.queues.push_target import new_secret

    click.echo(new_secret())


@command.command("show", epilog=EPILOG)
@click.argument("name")
@remote_options
def show(name: str, as_json: bool, client: Asker) -> None:
    """Show the options of a queue, and what became of its messages."""
    found = client.ask("GET", "queues", name)
    rows = [(key, value) for key, value in found.items() if not isinstance(value, dict | list)]
    for group in ("ends", "failures", "options"):
        rows += [(f"{group}.{key}", value) for key, value in found[group].items() if key != "push"]
    rows += _push_rows(found)
    print_answer(found, as_json, lambda: print_table(("WHAT", "VALUE"), rows))


@command.command("peek", epilog=EPILOG)
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(1, PAGE), metavar="N", default=10, show_default=True, help="How many to show."
)
@remote_options
def peek(name: str, limit: int, as_json: bool, client: Asker) -> None:
    """Show the first messages of a queue; they stay where they are."""
    found = client.ask("GET", "queues", name, "messages", limit=limit)
    rows = [
        (each["message_id"], each["published_at"], each["payload_bytes"], each["topic"], preview(each))
        for each in found["messages"]
    ]
    print_answer(found, as_json, lambda: print_table(_PEEKED, rows))
    more = found["depth"] - len(rows)
    if more > 0 and not as_json:
        note(f"{counted(more, 'more message')} {'is' if more == 1 else 'are'} in the queue.")


@command.command("purge", epilog=EPILOG)
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only say how many messages it would drop.")
@yes_option
@remote_options
def purge(name: str, dry_run: bool, yes: bool, as_json: bool, client: Asker) -> None:
    """Drop all messages of a queue, also those that consumers have; dead letters stay."""
    if not dry_run and not yes:
        queue = client.ask("GET", "queues", name)
        confirm(f"Drop {counted(queue['depth'], 'message')} of queue {name}?")
    found = client.ask("DELETE", "queues", name, "messages", dry_run=dry_run)
    how_many = counted(found["messages"], "message")
    print_sentence(found, as_json, f"Would drop {how_many}." if dry_run else f"{how_many} dropped.")


@command.command("pause", epilog=EPILOG)
@click.argument("name")
@remote_options
def pause(name: str, as_json: bool, client: Asker) -> None:
    """Deliver nothing of a queue until it is resumed; it takes messages."""
    print_sentence(client.ask("POST", "queues", name, "pause"), as_json, f"Queue {name} paused.")


@command.command("resume", epilog=EPILOG)
@click.argument("name")
@remote_options
def resume(name: str, as_json: bool, client: Asker) -> None:
    """Deliver the messages of a queue that was paused."""
    print_sentence(client.ask("POST", "queues", name, "resume"), as_json, f"Queue {name} resumed.")


@command.command("move", epilog=f"{EPILOG}  4  it cannot move\n")
@click.argument("name")
@click.option("--to", required=True, metavar="NODE", help="The node to which it goes.")
@remote_options
def move(name: str, to: str, as_json: bool, client: Asker) -> None:
    """Move a queue to another node. Its messages follow, and its consumers go on there."""
    found = client.ask("POST", "queues", name, "move", body={"to": to})
    print_sentence(
        found, as_json, f"Queue {name} moves to node {to}, and {counted(found['messages'], 'message')} with it."
    )


@command.command("delete", epilog=EPILOG)
@click.argument("name")
@yes_option
@remote_options
def delete(name: str, yes: bool, as_json: bool, client: Asker) -> None:
    """Delete a queue with its messages and dead letters."""
    if not yes:
        queue = client.ask("GET", "queues", name)
        messages, letters = counted(queue["depth"], "message"), counted(queue["dead_letters"], "dead letter")
        confirm(f"Delete queue {name} with {messages} and {letters}?")
    client.ask("DELETE", "queues", name)
    print_sentence({"deleted": True}, as_json, f"Queue {name} deleted.")


def _push_of(given: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The push target that options say, which are taken out of them; empty where they say none."""
    names = {"push_url": "url", "push_secret": "secret", "push_max_requests": "max_requests", "push_wrapper": "wrapper"}
    said = {key: given.pop(name) for name, key in names.items()}
    said = {key: value for key, value in said.items() if value is not None}
    if said and not (said.get("url") or before):
        raise click.UsageError("--push-url is missing: it says where the messages are pushed to")
    return {**before, **said} if said else {}


def _push_rows(found: dict[str, Any]) -> list[tuple[str, Any]]:
    rows = [(f"push.{key}", value) for key, value in found.get("push", {}).items() if key != "requests"]
    requests = found.get("push", {}).get("requests", {})
    rows += [(f"push.requests.{key}", value) for key, value in requests.items() if value]
    target = found["options"]["push"] or {}
    return rows + [(f"push.{key}", value) for key, value in target.items() if key != "url"]


def _tell_secret(secret: str | None) -> None:
    if secret:
        click.echo(f"Its requests are signed with {secret}, which is not shown again.")


@command.command("seek", epilog=f"{EPILOG}  4  the snapshot is of another queue, or another seek is under way\n")
@click.argument("name")
@click.option("--time", metavar="TIME", help="Deliver what was published from then on, such as 2026-11-24T08:30:00Z.")
@click.option("--snapshot", metavar="SNAPSHOT", help="Deliver what had not ended then, and what came since.")
@remote_options
def seek(name: str, time: str | None, snapshot: str | None, as_json: bool, client: Asker) -> None:
    """Move a queue to a time or snapshot. Older messages are skipped; newer ones are delivered again.

    Acknowledged messages come back if the queue retained them (--retain-acked), or if a snapshot did.
    """
    if (time is None) == (snapshot is None):
        raise click.UsageError("Say one of --time and --snapshot.")
    body = {"time": time} if time is not None else {"snapshot": snapshot}
    found = client.ask("POST", "queues", name, "seek", body=body)
    waiting = counted(found["depth"], "message")
    print_sentence(found, as_json, f"Queue {name} is at {time or snapshot}: {waiting} in it.")


@command.group("snapshot")
def snapshot_group() -> None:
    """Make, list or delete snapshots of queues, to seek back to."""


@snapshot_group.command("create", epilog=f"{EPILOG}  4  there is a snapshot of that name, or too many\n")
@click.argument("name")
@click.argument("snapshot")
@remote_options
def create_snapshot(name: str, snapshot: str, as_json: bool, client: Asker) -> None:
    """Make SNAPSHOT of what has not ended in the queue NAME. It is kept for a week."""
    found = client.ask("POST", "queues", name, "snapshots", snapshot)
    sentence = f"Snapshot {snapshot} of {counted(found['messages'], 'message')}, until {found['expires_at'][:19]}Z."
    print_sentence(found, as_json, sentence)


@snapshot_group.command("ls", epilog=EPILOG)
@click.argument("name", required=False)
@remote_options
def list_snapshots(name: str | None, as_json: bool, client: Asker) -> None:
    """List the snapshots of the queue NAME, or of all queues."""
    path = ("snapshots",) if name is None else ("queues", name, "snapshots")
    found = client.whole(*path)
    keys = ("name", "queue", "messages", "created_at", "expires_at")
    print_answer(
        found, as_json, lambda: print_entries(_SNAPSHOTS, found["entries"], lambda each: [each[key] for key in keys])
    )


@snapshot_group.command("rm", epilog=EPILOG)
@click.argument("snapshot")
@remote_options
def remove_snapshot(snapshot: str, as_json: bool, client: Asker) -> None:
    """Delete a snapshot."""
    client.ask("DELETE", "snapshots", snapshot)
    print_sentence({"deleted": True}, as_json, f"Snapshot {snapshot} deleted.")


def _row(each: dict[str, Any]) -> tuple[object, ...]:
    return (
        each["name"],
        each["depth"],
        each["leased"],
        each["scheduled"],
        f"{each['oldest_age_s']:.0f}s" if each["depth"] else "-",
        each["consumers"],
        each["dead_letters"],
        _state(each),
        " ".join(each["filters"]),
    )


def _state(each: dict[str, Any]) -> str:
    if each["leaving"]:
        return "moves away"
    if each["paused"]:
        return "paused"
    if each["depth"] and not (each["consumers"] or each["leased"] or each["pushed"]):
        return "no consumer"
    return "running"
