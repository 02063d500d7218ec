"""`mqttlite stream`: the streams of a running broker: list, make, look at, read and delete them.

What is asked is in `ask_admin`. Invariant: `ls`, `show`, `readers`, `offsets` and `read` change nothing.
"""

import time
from pathlib import Path
from typing import Any, Final

import click

from mqttlite.cli.ask_admin import (
    EPILOG,
    Asker,
    Unreachable,
    WrongUsage,
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
from mqttlite.cli.listing_group import ListingGroup
from mqttlite.cli.session_queue import preview
from mqttlite.extensions.streams.archive_import import ArchiveImport, Counts, ImportStopped, Progress, RequestRefused
from mqttlite.extensions.streams.archive_names import File, find

_HEADER: Final = ("NAME", "MESSAGES", "BYTES", "READERS", "PARTITIONS", "KEEP-S", "KEEP-BYTES", "FILTERS")
_PARTITIONS: Final = ("PARTITION", "FIRST", "END", "MESSAGES", "BYTES")
_READERS: Final = ("CLIENT", "SUBSCRIPTION", "GROUP", "CONNECTED", "LAG", "SKIPPED", "POSITIONS")
_GROUPS: Final = ("GROUP", "MODE", "LAG", "LEFT", "UNDER-WAY", "SCHEDULED", "DEAD", "MOVES", "MEMBERS", "OFFSETS")
_DEAD: Final = ("PARTITION", "OFFSET", "CAUSE", "ATTEMPTS", "DIED", "KEPT", "DETAIL")
_MESSAGES: Final = ("PARTITION", "OFFSET", "PUBLISHED", "TOPIC", "PAYLOAD")

_TELL_S: Final = 5.0
"""How often an import says how far it is."""

_PROGRESS_HELP: Final = "Where it keeps how far it is.  [default: import-NAME-into-NAME.json in FOLDER]"


@click.group(cls=ListingGroup)
def command() -> None:
    """List, make, look at, read or delete streams, whose messages are read by subscribing to $stream/NAME.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway.
    """


@command.command("ls", epilog=EPILOG)
@remote_options
def list_streams(as_json: bool, client: Asker) -> None:
    """List the streams with what they keep."""
    found = client.ask("GET", "streams")
    print_answer(found, as_json, lambda: print_entries(_HEADER, found["items"], _row))


@command.command("create", epilog=f"{EPILOG}  4  there is a stream of that name, or too many\n")
@click.argument("name")
@click.argument("filters", nargs=-1, metavar="[FILTER]...")
@click.option("--partitions", type=int, metavar="N", help="Messages with one key are in one of them.  [default: 4]")
@click.option("--keep", type=int, metavar="SECONDS", help="How long messages are kept; 0: for any time.")
@click.option("--keep-bytes", type=int, metavar="N", help="How many bytes are kept; the oldest messages go first.")
@click.option("--last-value", is_flag=True, help="Keep the newest message of each key longer than that.")
@click.option("--keep-tombstones", type=int, metavar="SECONDS", help="How long a message that removes a key is kept.")
@remote_options
def create(
    name: str,
    filters: tuple[str, ...],
    partitions: int | None,
    keep: int | None,
    keep_bytes: int | None,
    last_value: bool,
    keep_tombstones: int | None,
    as_json: bool,
    client: Asker,
) -> None:
    """Make the stream NAME of the messages that FILTERs match, and of those published to $stream/NAME."""
    given = {
        "partitions": partitions,
        "keep_s": keep,
        "keep_bytes": keep_bytes,
        "last_value": last_value or None,
        "keep_tombstones_s": keep_tombstones,
    }
    body = {"name": name, "filters": list(filters)} | {key: each for key, each in given.items() if each is not None}
    found = client.ask("POST", "streams", body=body)
    print_sentence(found, as_json, f"Stream {name} made: subscribe to $stream/{name}, or to $stream/{name}@earliest.")


@command.command("show", epilog=EPILOG)
@click.argument("name")
@remote_options
def show(name: str, as_json: bool, client: Asker) -> None:
    """Show the partitions of the stream NAME."""
    found = client.ask("GET", "streams", name)
    rows = [
        (each["partition"], each["first"], each["end"], each["messages"], each["size_bytes"])
        for each in found["partitions"]
    ]
    print_answer(found, as_json, lambda: print_table(_PARTITIONS, rows))


@command.command("readers", epilog=EPILOG)
@click.argument("name")
@remote_options
def readers(name: str, as_json: bool, client: Asker) -> None:
    """List the readers of the stream NAME: where they are, and how many messages they have not finished."""
    found = client.ask("GET", "streams", name, "readers")
    rows = [
        (
            *(each["client_id"], each["subscription"], each["group"] or "-", "yes" if each["connected"] else "no"),
            *(each["lag"], each["skipped"], " ".join(map(str, each["positions"]))),
        )
        for each in found["items"]
    ]
    print_answer(found, as_json, lambda: print_table(_READERS, rows))


@command.command("groups", epilog=EPILOG)
@click.argument("name")
@remote_options
def groups(name: str, as_json: bool, client: Asker) -> None:
    """List the groups of the stream NAME: who reads which partition, how many messages are not finished, and which part
    of its time or room is left to the oldest of them."""
    found = client.ask("GET", "streams", name, "groups")
    rows = [
        (
            *(each["name"], each["mode"], each["lag"], f"{each['retention_left']:.0%}", each["under_way"]),
            *(each["scheduled"], each["dead_letters"], each["moves"], " ".join(each["members"])),
            " ".join(f"{at}:{each['positions'][at]}={owner or '-'}" for at, owner in enumerate(each["owners"])),
        )
        for each in found["items"]
    ]
    print_answer(found, as_json, lambda: print_table(_GROUPS, rows))


@command.command("group", epilog=f"{EPILOG}  4  the group is not shared: delete it first\n")
@click.argument("name")
@click.argument("group")
@click.option("--ack-deadline", type=float, metavar="SECONDS", help="How long a member may hold a message.")
@click.option("--max-attempts", type=int, metavar="N", help="Deliveries of a message before it is a dead letter.")
@click.option("--min-delay", type=float, metavar="SECONDS", help="The delay after the first failed attempt.")
@click.option("--max-delay", type=float, metavar="SECONDS", help="The longest delay; it doubles with each attempt.")
@remote_options
def set_group(
    name: str,
    group: str,
    ack_deadline: float | None,
    max_attempts: int | None,
    min_delay: float | None,
    max_delay: float | None,
    as_json: bool,
    client: Asker,
) -> None:
    """Make the shared group GROUP of the stream NAME, or change it: each message goes to any member.

    Options that are not given are as by default. Groups whose partitions have one reader each need no command.
    """
    given = {
        "ack_deadline_s": ack_deadline,
        "max_attempts": max_attempts,
        "min_delay_s": min_delay,
        "max_delay_s": max_delay,
    }
    body = {"mode": "shared"} | {key: each for key, each in given.items() if each is not None}
    found = client.ask("PUT", "streams", name, "groups", group, body=body)
    print_sentence(found, as_json, f"Group {group} of {name} is shared: subscribe to $share/{group}/$stream/{name}.")


@command.command("dead", epilog=EPILOG)
@click.argument("name")
@click.argument("group")
@click.option("--replay", is_flag=True, help="Deliver them again.")
@click.option("--drop", is_flag=True, help="Forget them; the messages stay in the stream.")
@click.option("--places", default="", metavar="PARTITION:OFFSET,...", help="Only these.  [default: all]")
@remote_options
def dead(name: str, group: str, replay: bool, drop: bool, places: str, as_json: bool, client: Asker) -> None:
    """List the dead letters of the shared group GROUP of the stream NAME, or replay or drop them."""
    if replay and drop:
        raise WrongUsage("Either --replay or --drop.")
    path = ("streams", name, "groups", group, "dead-letters")
    if not replay and not drop:
        found = client.ask("GET", *path)
        wanted = {each for each in places.split(",") if each}
        items = [each for each in found["items"] if not wanted or f"{each['partition']}:{each['offset']}" in wanted]
        rows = [
            (
                *(each["partition"], each["offset"], each["cause"], each["attempts"], each["died_at"]),
                *("yes" if each["is_kept"] else "no", each["detail"] or "-"),
            )
            for each in items
        ]
        print_answer(found | {"items": items}, as_json, lambda: print_table(_DEAD, rows))
        return
    found = client.ask("POST", *path, "replay" if replay else "drop", body={"places": places})
    if as_json:
        print_json(found)
    elif drop:
        click.echo(f"{counted(found['dropped'], 'dead letter')} dropped.")
    else:
        click.echo(f"{counted(found['replayed'], 'dead letter')} replayed.")
        if found["gone"]:
            note(f"{found['gone']} are gone: the stream keeps their messages no longer.")
        if found["left"]:
            note(f"{found['left']} are left, because much is under way: run it again.")


@command.command("seek", epilog=EPILOG)
@click.argument("name")
@click.argument("group")
@click.argument("position")
@remote_options
def seek(name: str, group: str, position: str, as_json: bool, client: Asker) -> None:
    """Make the group GROUP of the stream NAME go on from POSITION: earliest, latest, a time, or PARTITION:OFFSET."""
    found = client.ask("POST", "streams", name, "groups", group, "seek", body={"to": position})
    print_sentence(found, as_json, f"Group {group} of {name} goes on from {position}.")


@command.command("offsets", epilog=EPILOG)
@click.argument("name")
@click.option("--at", default="latest", show_default=True, help="earliest, latest, or a time.")
@remote_options
def offsets(name: str, at: str, as_json: bool, client: Asker) -> None:
    """Print the offset of each partition of the stream NAME at a time, as a position to begin from or to seek to."""
    found = client.ask("GET", "streams", name, "offsets", at=at)
    print_sentence(found, as_json, found["positions"])


@command.command("read", epilog=EPILOG)
@click.argument("name")
@click.option("--partition", type=click.IntRange(0), default=0, show_default=True, help="The partition to read.")
@click.option("--since", default="earliest", show_default=True, help="An offset, earliest, or a time.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Messages at most.")
@remote_options
def read(name: str, partition: int, since: str, limit: int, as_json: bool, client: Asker) -> None:
    """Print messages of the stream NAME. No reader gets them less for it."""
    found = client.ask("GET", "streams", name, "messages", partition=partition, since=since, limit=limit)
    rows = [
        (each["partition"], each["offset"], each["published_at"], each["topic"], preview(each))
        for each in found["messages"]
    ]
    print_answer(found, as_json, lambda: print_table(_MESSAGES, rows))
    if found["next"] < found["end"] and not as_json:
        note(f"There are {found['end'] - found['next']} more: --since {found['next']}")


@command.command("rm", epilog=EPILOG)
@click.argument("name")
@click.option("--group", metavar="GROUP", help="Delete only this group, with its positions.")
@yes_option
@remote_options
def remove(name: str, group: str | None, yes: bool, as_json: bool, client: Asker) -> None:
    """Delete the stream NAME with its messages and the positions of its readers."""
    what = f"stream {name} with its messages" if group is None else f"group {group} of the stream {name}"
    if not yes:
        confirm(f"Delete the {what}?")
    found = client.ask("DELETE", "streams", name, *(() if group is None else ("groups", group)))
    print_sentence(found, as_json, f"Deleted: {what}.")


@command.command("import", epilog=EPILOG)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--stream", metavar="NAME", help="Whose archive; without it the only one in FOLDER.")
@click.option("--into", metavar="NAME", help="The stream that gets the messages.  [default: that of the same name]")
@click.option("--progress", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=_PROGRESS_HELP)
@remote_options
def import_archive(
    folder: Path, stream: str | None, into: str | None, progress: Path | None, as_json: bool, client: Asker
) -> None:
    """Append the messages of an archive, in the folder that [stream_archive] names, to a stream.

    They keep topic, key, payload and user properties, and the order of their partitions. Run it again after an
    error: it goes on where it was, and appends no message twice.
    """
    try:
        files = find(folder, stream or "*")
    except OSError as error:
        raise Unreachable(f"{folder} cannot be read: {error.strerror}.") from None
    names = sorted({each.stream for each in files})
    if len(names) != 1:
        what = f"of the stream {stream}" if stream else "of a stream"
        there = f"There are the archives of {', '.join(names)}: name one with --stream." if names else ""
        raise WrongUsage(f"{folder}: {there or f'there is no archive {what}.'}")
    name = names[0]
    target = into or name
    path = folder / f"import-{name}-into-{target}.json" if progress is None else progress
    counts = _import(files, _progress(path, name, target), client)
    if as_json:
        print_json({"appended": counts.appended, "known": counts.known, "missing": counts.missing})
        return
    click.echo(f"{counted(counts.appended, 'message')} appended to {target}, {counts.known} were there.")
    if counts.missing:
        note(f"{counted(counts.missing, 'offset')} between the files are in none: the archive has no such messages.")
    if not counts.appended and not counts.known:
        note(f"{path} says that all is imported; remove it to begin anew.")


def _progress(path: Path, stream: str, into: str) -> Progress:
    try:
        return Progress.load(path, stream, into)
    except ImportStopped as error:
        raise WrongUsage(f"{error}.") from None


def _import(files: list[File], progress: Progress, client: Asker) -> Counts:
    """Import into a stream that is there. Raises as `Asker.ask` does, and `Unreachable` where it stops."""
    end = sum(each["end"] for each in client.ask("GET", "streams", progress.into)["partitions"])
    if end < progress.end:
        note(f"The stream {progress.into} was made anew since {progress.path}: the import begins at the beginning.")
        progress.end = 0
        progress.positions.clear()
    told_at = time.monotonic()

    def send(messages: list[dict[str, Any]]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = client.ask(
                "POST", "streams", progress.into, "messages", body={"messages": messages}
            )
        except WrongUsage as error:
            raise RequestRefused(error.message) from None
        return answer

    def tell(counts: Counts) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _TELL_S:
            told_at = time.monotonic()
            note(f"{counts.appended + counts.known} messages so far")

    work = ArchiveImport(progress, send, tell)
    try:
        work.run(files)
    except ImportStopped as error:
        raise Unreachable(f"{error}.") from None
    except ImportError as error:
        raise Unreachable(
            f"It needs pyarrow, which cannot be loaded ({error}): pip install 'mqttlite[telemetry]'."
        ) from None
    return work.counts


def _row(each: dict[str, Any]) -> tuple[object, ...]:
    return (
        *(each["name"], each["messages"], each["size_bytes"], each["readers"], len(each["partitions"])),
        *(each["keep_s"], each["keep_bytes"], " ".join(each["filters"])),
    )
