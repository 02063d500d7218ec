"""`mqttlite token`: the API keys with which programs and people use a broker over HTTP.

How the file looks lives in `security.api_keys`; with `--url` a broker's gateway changes its own. Invariant: a key is
shown once, when it is made.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Final, Literal

import click
import msgspec

from mqttlite.cli.ask_admin import TIMEOUT_S, Asker, WrongUsage, asker_of
from mqttlite.cli.ask_options import is_from_environment, url_options
from mqttlite.cli.data_dir import chosen, data_dir_options
from mqttlite.cli.listing_group import ListingGroup
from mqttlite.security.api_keys import FILE_NAME, ApiKeyFileError, add, load, revoke

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

ROLES: Final = ("user", "viewer", "operator", "admin")

_EXIT_CODES: Final = (
    "Exit codes: 0, done; 1, refused or failed, and the keys are as they were; 2, wrong usage; 3, with --url: there is "
    "no such key."
)


Role = Literal["user", "viewer", "operator", "admin"]


@click.group(cls=ListingGroup)
def command() -> None:
    """Make, list and revoke API keys: the credentials of programs and people over HTTP.

    A broker with a section [http] that uses the file notices a change within a second. The file holds no keys, only
    what checks them.
    """


class _File:
    """The keys of a file, on this machine."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    def add(self, role: Role, user: str | None, lifetime_s: int | None, note: str) -> tuple[str, str, str]:
        """The key, its id, and where it is kept. Raises `click.ClickException`."""
        ends = None if lifetime_s is None else int(time.time()) + lifetime_s
        with _shown():
            secret, key = add(self._path, role, user, ends, note)
        return secret, key.id, str(self._path)

    def list(self) -> list[dict[str, Any]]:
        """Without the keys themselves. Raises `click.ClickException`."""
        with _shown():
            keys = load(self._path)
        return [
            {name: value for name, value in msgspec.structs.asdict(key).items() if name != "sha256"} for key in keys
        ]

    def revoke(self, key_id: str) -> None:
        """Raises `click.ClickException`."""
        with _shown():
            found = revoke(self._path, key_id)
        if not found:
            raise click.ClickException(f"{self._path} has no key {key_id}; 'mqttlite token list' shows those it has")


class _Remote:
    """The keys of a broker, by its gateway."""

    def __init__(self, client: Asker, url: str) -> None:
        self._client: Final = client
        self._url: Final = url

    def add(self, role: Role, user: str | None, lifetime_s: int | None, note: str) -> tuple[str, str, str]:
        """As `_File`."""
        body = {"role": role, "user": user, "lifetime_s": lifetime_s, "note": note}
        found = self._client.ask("POST", "api-keys", body=body)
        return found["key"], found["id"], self._url

    def list(self) -> list[dict[str, Any]]:
        """As `_File`."""
        found: list[dict[str, Any]] = self._client.ask("GET", "api-keys")["items"]
        for each in found:
            for name in ("created_at", "expires_at"):
                if each[name] is not None:
                    each[name] = int(datetime.fromisoformat(each[name]).timestamp())
        return found

    def revoke(self, key_id: str) -> None:
        """As `_File`."""
        self._client.ask("DELETE", "api-keys", key_id)


@contextmanager
def _shown() -> Iterator[None]:
    """The problem with the file, as a sentence."""
    try:
        yield
    except ApiKeyFileError as error:
        raise click.ClickException(str(error)) from None


def _where_options(function: Callable[..., None]) -> Callable[..., None]:
    """Where the keys are: a file, or with `--url` a broker. The function gets `keys`."""

    @wraps(function)
    def with_keys(
        *,
        path: Path | None,
        config_path: str | None,
        data_dir: str | None,
        url: str | None,
        token: str | None,
        ca_file: str | None,
        **others: Any,
    ) -> None:
        here = (path, config_path, data_dir)
        if url is not None and is_from_environment("url") and any(each is not None for each in here):
            url = None
        if sum(each is not None for each in (*here, url)) > 1:
            raise click.UsageError("-c, --data-dir, --file and --url each name a place: give one of them")
        if url is None:
            function(keys=_File(path or _file_of(config_path) or chosen(config_path, data_dir) / FILE_NAME), **others)
            return
        function(keys=_Remote(asker_of(None, url, token, ca_file, TIMEOUT_S), url), **others)

    option = click.option(
        "--file", "path", metavar="FILE", type=click.Path(path_type=Path), help="Another file (http.api_key_file)."
    )
    return data_dir_options(url_options()(option(with_keys)))


def _file_of(config_path: str | None) -> Path | None:
    """The file that a configuration names for keys. Raises `WrongUsage`."""
    if config_path is None:
        return None
    from mqttlite.config import ConfigError, load_config  # here, for it imports the broker

    try:
        http = load_config(config_path).http
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    return None if http is None or http.api_key_file is None else Path(http.api_key_file)


def _lifetime(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """How long a key is good, in seconds."""
    if value is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", value)
    if found is None:
        raise click.BadParameter(f"{value!r}: write a number and s, m, h or d, such as 90d")
    return int(found[1]) * _UNITS[found[2]]


@command.command(epilog=_EXIT_CODES)
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="Its permissions; each role may do more than the one before.",
)
@click.option("--user", metavar="NAME", help="The user whose topics it may use, as over MQTT.  [default: no user's]")
@click.option("--expires", "lifetime_s", metavar="TIME", callback=_lifetime, help="Such as 90d, 12h, 30m or 45s.")
@click.option("--note", default="", metavar="TEXT", help="The purpose of the key.")
@_where_options
def new(role: Role, user: str | None, lifetime_s: int | None, note: str, keys: _File | _Remote) -> None:
    """Make a key and print it; it cannot be shown again."""
    if user == "":
        raise click.UsageError("--user names nobody")
    secret, key_id, where = keys.add(role, user, lifetime_s, note)
    click.echo(secret)
    click.echo(f"key {key_id} ({role}) was added to {where}; this is the only time that it is shown", err=True)


@command.command("list", epilog=_EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help="As JSON, a line for each key.")
@_where_options
def list_(as_json: bool, keys: _File | _Remote) -> None:
    """List the keys, without the keys themselves."""
    for key in keys.list():
        if as_json:
            click.echo(msgspec.json.encode(key))
        else:
            ends = "never expires" if key["expires_at"] is None else f"expires {_time(key['expires_at'])}"
            click.echo(f"{key['id']}  {key['role']:8}  {key['user'] or '-':16}  {ends}  {key['note']}".rstrip())


@command.command("revoke", epilog=_EXIT_CODES)
@click.argument("key_id", metavar="ID")
@_where_options
def revoke_(key_id: str, keys: _File | _Remote) -> None:
    """Remove the key of that id; a running broker refuses it within a second."""
    keys.revoke(key_id)
    click.echo(f"key {key_id} was revoked", err=True)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
