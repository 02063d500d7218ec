"""`mqttlite retained`: the retained messages of a running broker: list or remove those that a filter matches.

What is asked is in `ask_admin`. Invariant: to remove, a filter must be named.
"""

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    AdminClient,
    counted,
    limit_option,
    note,
    note_more,
    options,
    print_json,
    print_table,
    time_of,
)


@click.group(context_settings={"help_option_names": ["--help"]})
def command() -> None:
    """List or remove the retained messages of a running broker.

    It asks the broker's admin socket, which is in its data directory.
    """


@command.command("ls", epilog=EPILOG)
@click.argument("topic_filter", metavar="[FILTER]", default="#")
@limit_option(100)
@options
def list_retained(topic_filter: str, limit: int, as_json: bool, data_dir: str | None, timeout_s: float) -> None:
    """List the retained messages that a topic filter matches, by topic; without a filter, all.

    On a terminal it is a table; elsewhere each message is a line, and tabs are between its columns.
    """
    found = AdminClient(data_dir, timeout_s).page("retained", limit=limit, filter=topic_filter)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["topic"], time_of(each["published_at"]), each["qos"], each["payload_bytes"]) for each in found["entries"]
    ]
    print_table(("TOPIC", "PUBLISHED", "QOS", "BYTES"), rows)
    note_more(found, limit)


@command.command("rm", epilog=EPILOG)
@click.argument("topic_filter", metavar="FILTER")
@click.option("--dry-run", is_flag=True, help="Only say how many messages it would remove.")
@options
def remove(topic_filter: str, dry_run: bool, as_json: bool, data_dir: str | None, timeout_s: float) -> None:
    """Remove the retained messages that a topic filter matches.

    Subscribers get the empty message with which a client removes one.
    """
    found = AdminClient(data_dir, timeout_s).remove("retained", dry_run=dry_run, filter=topic_filter)
    if as_json:
        print_json(found)
        return
    at_least = "" if found["complete"] else "at least "
    how_many = counted(found["messages"], "retained message")
    click.echo(f"Would remove {at_least}{how_many}." if dry_run else f"{how_many} removed.")
    if not dry_run and not found["complete"]:
        note("More were retained meanwhile.")
