"""`mqttlite token`: the API keys with which programs and people use a broker over HTTP.

How the file looks lives in `security.api_keys`. Invariant: a key is shown once, when it is made.
"""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import click
import msgspec

from mqttlite.cli.data_dir import data_dir_option
from mqttlite.security.api_keys import FILE_NAME, ApiKeyFileError, add, load, revoke

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

ROLES: Final = ("user", "viewer", "operator", "admin")

_EXIT_CODES: Final = "Exit codes: 0, done; 1, refused or failed, and the file is as it was; 2, wrong usage."

_HELP: Final = {"help_option_names": ["--help"]}

Role = Literal["user", "viewer", "operator", "admin"]


@click.group(context_settings=_HELP)
def command() -> None:
    """Make, list and revoke API keys: the credentials of programs and people over HTTP.

    A broker with a section [http] that uses the file notices a change within a second. The file holds no keys, only
    what checks them.
    """


def _file_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option(
        "--file", "path", metavar="FILE", type=click.Path(path_type=Path), help="Another file (http.api_key_file)."
    )
    return data_dir_option(option(function))


def _lifetime(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """When a key expires, in seconds since 1970."""
    if value is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", value)
    if found is None:
        raise click.BadParameter(f"{value!r}: write a number and s, m, h or d, such as 90d")
    return int(time.time()) + int(found[1]) * _UNITS[found[2]]


@command.command(epilog=_EXIT_CODES, context_settings=_HELP)
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do; each role may do more.")
@click.option("--user", metavar="NAME", help="The user whose topics it may use, as over MQTT.  [default: nobody's]")
@click.option("--expires", "expires_at", metavar="TIME", callback=_lifetime, help="Such as 90d, 12h, 30m or 45s.")
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
@_file_options
def new(role: Role, user: str | None, expires_at: int | None, note: str, path: Path | None, data_dir: Path) -> None:
    """Make a key and print it; it cannot be shown again."""
    if user == "":
        raise click.UsageError("--user names nobody")
    file = path or data_dir / FILE_NAME
    try:
        secret, key = add(file, role, user, expires_at, note)
    except ApiKeyFileError as error:
        raise click.ClickException(str(error)) from None
    click.echo(secret)
    click.echo(f"key {key.id} ({role}) was added to {file}; this is the only time that it is shown", err=True)


@command.command("list", epilog=_EXIT_CODES, context_settings=_HELP)
@click.option("--json", "as_json", is_flag=True, help="As JSON, a line for each key.")
@_file_options
def list_(as_json: bool, path: Path | None, data_dir: Path) -> None:
    """List the keys, without the keys themselves."""
    try:
        keys = load(path or data_dir / FILE_NAME)
    except ApiKeyFileError as error:
        raise click.ClickException(str(error)) from None
    for key in keys:
        if as_json:
            shown = {name: value for name, value in msgspec.structs.asdict(key).items() if name != "sha256"}
            click.echo(msgspec.json.encode(shown))
        else:
            ends = "never expires" if key.expires_at is None else f"expires {_time(key.expires_at)}"
            click.echo(f"{key.id}  {key.role:8}  {key.user or '-':16}  {ends}  {key.note}".rstrip())


@command.command("revoke", epilog=_EXIT_CODES, context_settings=_HELP)
@click.argument("key_id", metavar="ID")
@_file_options
def revoke_(key_id: str, path: Path | None, data_dir: Path) -> None:
    """Remove the key of that id; a running broker refuses it within a second."""
    file = path or data_dir / FILE_NAME
    try:
        found = revoke(file, key_id)
    except ApiKeyFileError as error:
        raise click.ClickException(str(error)) from None
    if not found:
        raise click.ClickException(f"{file} has no key {key_id}; 'mqttlite token list' shows those that it has")
    click.echo(f"key {key_id} was revoked", err=True)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
