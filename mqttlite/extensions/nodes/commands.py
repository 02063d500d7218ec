"""`mqttlite nodes`: the other nodes, as a running broker sees them, taking one out of service, and spreading queues."""

import time
from typing import Any, Final

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    counted,
    note,
    print_answer,
    print_json,
    print_sentence,
    print_table,
    remote_options,
)
from mqttlite.cli.listing_group import ListingGroup

_HEADER: Final = (
    *("NODE", "STATE", "CLIENTS", "SESSIONS", "IN/S", "OUT/S", "FILTERS", "WAITING", "SENT", "RECEIVED"),
    *("PASSED ON", "VERSION", "REASON"),
)

_MOVES: Final = ("QUEUE", "FROM", "TO", "MESSAGES")

_DOCUMENTS: Final = ("DOCUMENT", "REVISION", "STATE", "REFUSED", "REASON", "KEPT")

_OF_NEWER: Final = ("clients", "sessions", "received_per_s", "sent_per_s")
"""What a broker does not say that is still to be upgraded."""

LOOK_S: Final = 0.5
"""How often it is looked how far a node is."""


@click.group(cls=ListingGroup)
def command() -> None:
    """Look at the nodes of which a running broker is one, take one out of service, and spread queues over them.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@remote_options
def list_nodes(as_json: bool, client: Asker) -> None:
    """List the other nodes: whether each is connected, drains or is away, its clients and sessions, the messages that
    it receives and sends in a second, the topic filters that are subscribed there, the messages that wait for it, the
    bytes sent and received, the clients here whose sessions are there, and its version."""
    found = client.ask("GET", "nodes")
    rows = [
        (
            *(each["name"], each.get("drain") or each["state"]),
            *(each.get(member, "-") for member in _OF_NEWER),
            *(each["filters"], each["waiting"], each["sent_bytes"], each["received_bytes"], each["passed_on"]),
            *(each.get("release") or "-", each["reason"] or "-"),
        )
        for each in found["items"]
    ]
    print_answer(found, as_json, lambda: print_table(_HEADER, rows))


@command.command("documents", epilog=EPILOG)
@remote_options
def list_documents(as_json: bool, client: Asker) -> None:
    """List what all nodes have of what operators change at run time, such as users and bans: the revision that this
    node has, whether it is that of all, how many changes of this node were refused, what is wrong, and
    the file with the latest edit that was refused."""
    found = client.ask("GET", "nodes", "documents")
    rows = [
        (
            each["name"],
            each["revision"],
            "current" if each["current"] else "behind",
            each["refused"],
            each["reason"] or "-",
            each.get("kept") or "-",
        )
        for each in found["items"]
    ]
    print_answer(found, as_json, lambda: print_table(_DOCUMENTS, rows))


@command.command("drain", epilog=EPILOG)
@click.argument("target", metavar="[NODE]", required=False)
@click.option("--wait", "wait_s", default=600.0, show_default=True, help="How long to wait, in seconds. 0: not at all.")
@remote_options
def drain(as_json: bool, client: Asker, target: str | None, wait_s: float) -> None:
    """Take a node out of service, so that it can be stopped: the one that is asked, or NODE.

    It takes no new sessions, sends its clients away and moves their sessions to other nodes, and /readyz answers 503.
    The command waits until that is done, and fails (exit code 1) if it is not within the time, or if sessions stay.
    """
    state = client.ask("POST", "nodes", "drain", node=target)
    said = ""
    give_up_at = time.monotonic() + wait_s
    while state["step"] == "draining" and time.monotonic() < give_up_at:
        if (line := _progress(state)) != said:
            said = line
            click.echo(line, err=True)
        time.sleep(LOOK_S)
        state = client.ask("GET", "nodes", "drain", node=target)
    if as_json:
        print_json(state)
    else:
        click.echo(_progress(state))
        for each in state["left"]:
            click.echo(f"{each['sessions']} sessions stay: {each['reason']}.")
        if state["stays"]:
            click.echo(f"{', '.join(state['stays'])} stay: nobody gets their messages while this node is stopped.")
    if wait_s and (state["step"] != "drained" or state["left"]):
        raise SystemExit(1)


@command.command("undrain", epilog=EPILOG)
@click.argument("target", metavar="[NODE]", required=False)
@remote_options
def undrain(as_json: bool, client: Asker, target: str | None) -> None:
    """Take a node into service again: the one that is asked, or NODE. Sessions that went away stay where they are."""
    state = client.ask("DELETE", "nodes", "drain", node=target)
    print_sentence(state, as_json, f"Node {state['node']} takes sessions again.")


def _progress(state: dict[str, Any]) -> str:
    """How far a node is, as a line."""
    words = {"drained": "is drained and can be stopped", "draining": "drains", "": "takes sessions"}[state["step"]]
    line = (
        f"Node {state['node']} {words}: {state['moved']} sessions moved, {state['sessions']} left, "
        f"{state['clients']} clients, {state['waiting']} messages for other nodes."
    )
    return f"{line} {state['waits_for']}" if state["waits_for"] and state["step"] == "draining" else line


@command.command("balance", epilog=EPILOG)
@click.option("--dry-run", is_flag=True, help="Only say which queues would move.")
@remote_options
def balance(dry_run: bool, as_json: bool, client: Asker) -> None:
    """Move queues until each node has as many, or one more.

    Those with the fewest messages move. Streams, and queues that would lose something, stay where they are.
    """
    found: dict[str, Any] = {"moved": [], "complete": False}
    while not found["complete"]:
        further = client.ask("POST", "nodes", "balance", dry_run=dry_run)
        found = {**further, "moved": found["moved"] + further["moved"]}
        if dry_run or not further["moved"]:
            break
    if as_json:
        print_json(found)
        return
    print_table(_MOVES, [(each["name"], each["origin"], each["to"], each["messages"]) for each in found["moved"]])
    for each in found["stayed"]:
        note(f"Queue {each['name']} stays at node {each['node']}: {each['reason']}.")
    counts = ", ".join(f"{node} {counted(count, 'queue')}" for node, count in found["queues"].items())
    note(f"{'Then' if dry_run else 'Now'} the nodes have: {counts}.")
