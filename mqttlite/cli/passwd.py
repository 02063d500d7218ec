"""`mqttlite passwd`: who is in a password file, and with which password.

How the file looks lives in `security.password_file`. Invariant: a password is never an argument, which `ps` would show.
"""

import sys
from pathlib import Path

import click

from mqttlite.security.keys import MAX_ITERATIONS, MIN_ITERATIONS, Keys, TextError, keys_of
from mqttlite.security.password_file import (
    ITERATIONS,
    PasswordFileError,
    check_name,
    delete_user,
    new_salt,
    set_user,
)


@click.command(
    epilog="Exit codes: 0, done; 1, refused or failed, and the file is as it was; 2, wrong usage.",
    context_settings={"help_option_names": ["--help"]},
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("user", metavar="USER")
@click.option("-c", "--create", is_flag=True, help="Make the file.")
@click.option("-D", "--delete", is_flag=True, help="Remove the user.")
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of standard input.")
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=ITERATIONS,
    show_default=True,
    help="What a guess costs, and a CONNECT with a plain password.",
)
def command(path: Path, user: str, create: bool, delete: bool, password_stdin: bool, iterations: int) -> None:
    """Set the password of USER in FILE, or remove USER from it.

    The file holds no passwords, only keys to check them with (SCRAM-SHA-256). A broker that uses it notices the change.
    """
    if delete and (create or password_stdin):
        raise click.UsageError("--delete goes with neither --create nor --password-stdin")
    name = _checked(user)
    try:
        if delete:
            delete_user(path, name)
            click.echo(f"{name} was removed from {path}", err=True)
            return
        keys = _keys(_password(name, password_stdin), iterations)
        added = set_user(path, name, keys, create=create)
    except PasswordFileError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{name} was added to {path}" if added else f"{name} has a new password in {path}", err=True)


def _checked(user: str) -> str:
    try:
        return check_name(user)
    except TextError as error:
        raise click.ClickException(str(error)) from None


def _keys(password: str, iterations: int) -> Keys:
    try:
        return keys_of(password, new_salt(), iterations)
    except TextError as error:
        raise click.ClickException(f"the password: {error}") from None


def _password(name: str, from_stdin: bool) -> str:
    if not from_stdin:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask for the password on: use --password-stdin")
        typed: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return typed
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.ClickException("the password is not UTF-8") from None
