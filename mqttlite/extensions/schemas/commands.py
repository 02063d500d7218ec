"""`mqttlite schema`: the schema registry of a running broker, and checks of schemas and payloads without one.

What is asked is in `ask_admin`; what a schema says is in `extensions.schemas`. Invariant: `check` changes nothing.
"""

import sys
from pathlib import Path
from typing import Any, Final

import click

from mqttlite.cli.ask_admin import (
    Asker,
    NotFound,
    counted,
    print_answer,
    print_sentence,
    print_table,
    remote_options,
)
from mqttlite.extensions.schemas.parsed import SCHEMA_TYPES, ParsedSchema, SchemaError, SchemaType
from mqttlite.extensions.schemas.parsing import parse
from mqttlite.extensions.schemas.registry import LEVELS, parse_reference

EXIT_WRONG: Final = 4

MAX_FILE_BYTES: Final = 16 * 1_048_576
"""Of a payload: more than any schema lets through."""

EPILOG: Final = """\b
Exit codes:
  0  done
  1  no broker can be reached there, or it failed
  2  wrong usage, or a file that is no schema
  3  there is no such subject or version
  4  the schema is not compatible, or the payload is not what the schema says
"""

_HEADER: Final = ("SUBJECT", "VERSION", "ID", "TYPE", "COMPATIBILITY")

_type_option: Final = click.option(
    "--type",
    "schema_type",
    type=click.Choice([each.lower() for each in SCHEMA_TYPES]),
    help="The language of the schema.  [default: avro for .avsc files, else json]",
)


@click.group()
def command() -> None:
    """Register, list, compare or delete the schemas of a running broker.

    It asks the broker's admin socket, which is in its data directory, or with --url its gateway. A topic policy binds a
    schema to topics.
    """


@command.command("register", epilog=EPILOG)
@click.argument("subject")
@click.argument("file", type=click.Path(path_type=Path))
@_type_option
@remote_options
def register(subject: str, file: Path, schema_type: str | None, as_json: bool, client: Asker) -> None:
    """Make the schema in FILE the next version of SUBJECT, if its compatibility level allows it."""
    body = _body(file, schema_type)
    found = client.ask("POST", "registry", "subjects", subject, "versions", body=body)
    print_sentence(found, as_json, f"{subject}:{found['version']} has the id {found['id']}.")


@command.command("list", epilog=EPILOG)
@remote_options
def list_schemas(as_json: bool, client: Asker) -> None:
    """List the subjects, with the latest version of each.

    On a terminal it is a table; elsewhere each subject is a line, and tabs are between its columns.
    """
    found = []
    for name in client.ask("GET", "registry", "subjects"):
        try:
            latest = client.ask("GET", "registry", "subjects", name, "versions", "latest")
        except NotFound:  # it was deleted meanwhile
            continue
        level = client.ask("GET", "registry", "config", name, defaultToGlobal=True)["compatibilityLevel"]
        schema_type = latest.get("schemaType", "AVRO")
        found.append(
            {
                "subject": name,
                "version": latest["version"],
                "id": latest["id"],
                "type": schema_type,
                "compatibility": level,
            }
        )
    print_answer(found, as_json, lambda: print_table(_HEADER, [tuple(each.values()) for each in found]))


@command.command("show", epilog=EPILOG)
@click.argument("reference", metavar="SUBJECT[:VERSION]")
@remote_options
def show(reference: str, as_json: bool, client: Asker) -> None:
    """Print a schema, the latest version if none is named."""
    subject, version = parse_reference(reference)
    found = client.ask(
        "GET", "registry", "subjects", subject, "versions", "latest" if version is None else str(version)
    )
    print_sentence(found, as_json, found["schema"])


@command.command("delete", epilog=EPILOG)
@click.argument("reference", metavar="SUBJECT[:VERSION]")
@click.option("--permanent", is_flag=True, help="Forget what was deleted before.")
@remote_options
def delete(reference: str, permanent: bool, as_json: bool, client: Asker) -> None:
    """Delete a version, or all versions of a subject. With --permanent, what was deleted is forgotten."""
    subject, version = parse_reference(reference)
    segments = ["registry", "subjects", subject] + ([] if version is None else ["versions", str(version)])
    found = client.ask("DELETE", *segments, permanent=permanent or None)
    numbers = found if isinstance(found, list) else [found]
    print_sentence(
        numbers, as_json, f"{counted(len(numbers), 'version')} of {subject} deleted{' for good' if permanent else ''}."
    )


@command.command("level", epilog=EPILOG)
@click.argument("subject", required=False)
@click.option("--set", "level", type=click.Choice(LEVELS), help="Make this the compatibility level.")
@remote_options
def show_level(subject: str | None, level: str | None, as_json: bool, client: Asker) -> None:
    """Print the compatibility level of SUBJECT, or that of the registry, or set it."""
    segments = ["registry", "config", *([] if subject is None else [subject])]
    if level is not None:
        client.ask("PUT", *segments, body={"compatibility": level})
    found = client.ask("GET", *segments, defaultToGlobal=True)
    print_sentence(found, as_json, found["compatibilityLevel"])


@command.command("check", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@_type_option
@click.option(
    "--payload",
    "payloads",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Check the payload in this file against the schema; no broker is asked. May be repeated.",
)
@click.option("--subject", metavar="SUBJECT[:VERSION]", help="Ask a broker whether the schema may follow these.")
@remote_options
def check(
    file: Path,
    schema_type: str | None,
    payloads: tuple[Path, ...],
    subject: str | None,
    as_json: bool,
    client: Asker,
) -> None:
    """Check the schema in FILE, and payloads against it, or whether it may be the next version of a subject."""
    parsed = _parsed(file, schema_type)
    faults = {str(each): _fault(parsed, each) for each in payloads}
    problems = [f"{name}: {fault}" for name, fault in faults.items() if fault]
    if subject is not None:
        body = _body(file, schema_type)
        problems += _incompatibilities(client, subject, body)
    print_sentence({"ok": not problems, "problems": problems}, as_json, "\n".join(problems) or "ok")
    if problems:
        sys.exit(EXIT_WRONG)


def _incompatibilities(client: Asker, reference: str, body: dict[str, str]) -> list[str]:
    subject, version = parse_reference(reference)
    segments = ["registry", "compatibility", "subjects", subject, "versions"]
    if version is not None:
        segments.append(str(version))
    messages: list[str] = client.ask("POST", *segments, body=body, verbose=True)["messages"]
    return messages


def _type_of(file: Path, schema_type: str | None) -> SchemaType:
    if schema_type is None:
        return "AVRO" if file.suffix == ".avsc" else "JSON"
    return "AVRO" if schema_type == "avro" else "JSON"


def _parsed(file: Path, schema_type: str | None) -> ParsedSchema:
    try:
        return parse(_type_of(file, schema_type), _text(file))
    except SchemaError as error:
        raise click.UsageError(f"{file}: {error}") from None


def _body(file: Path, schema_type: str | None) -> dict[str, Any]:
    return {"schemaType": _type_of(file, schema_type), "schema": _text(file)}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.UsageError(f"{file}: it is not UTF-8") from None
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None


def _fault(parsed: ParsedSchema, file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return parsed.fault(opened.read(MAX_FILE_BYTES))
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None
