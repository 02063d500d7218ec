"""`mqttlite passwd`: who is in a password file, and with which password.

How the file looks lives in `security.password_file`. Invariant: a password is never an argument, which `ps` would show.
"""

import sys
from pathlib import Path

import click

from mqttlite.security.hashes import new_argon2id, new_scrypt
from mqttlite.security.keys import MAX_ITERATIONS, MIN_ITERATIONS, TextError, keys_of, prepare
from mqttlite.security.password_file import (
    ITERATIONS,
    Entry,
    PasswordFileError,
    check_name,
    delete_user,
    new_salt,
    set_user,
)


@click.command(
    epilog="Exit codes: 0, done; 1, refused or failed, and the file is as it was; 2, wrong usage.",
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("user", metavar="USER")
@click.option("-c", "--create", is_flag=True, help="Make the file.")
@click.option("-D", "--delete", is_flag=True, help="Remove the user.")
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of standard input.")
@click.option(
    "--algorithm",
    type=click.Choice(["scram-sha-256", "argon2id", "scrypt"]),
    default="scram-sha-256",
    show_default=True,
    help="How the password is kept: only scram-sha-256 also serves clients that log in by SCRAM; "
    "a stolen file takes longest to guess with argon2id.",
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    help=f"With scram-sha-256: what a guess costs, and a CONNECT with a plain password.  [default: {ITERATIONS}]",
)
def command(
    path: Path, user: str, create: bool, delete: bool, password_stdin: bool, algorithm: str, iterations: int | None
) -> None:
    """Set the password of USER in FILE, or remove USER from it.

    The file holds no passwords, only what checks them. Lines of Mosquitto's password files stay as they are. A broker
    that uses the file notices the change.
    """
    if delete and (create or password_stdin):
        raise click.UsageError("--delete goes with neither --create nor --password-stdin")
    if iterations is not None and algorithm != "scram-sha-256":
        raise click.UsageError("--iterations goes with --algorithm scram-sha-256 only")
    name = _checked(user)
    try:
        if delete:
            delete_user(path, name)
            click.echo(f"{name} was removed from {path}", err=True)
            return
        entry = _entry(_password(name, password_stdin), algorithm, iterations or ITERATIONS)
        added = set_user(path, name, entry, create=create)
    except PasswordFileError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{name} was added to {path}" if added else f"{name} has a new password in {path}", err=True)


def _checked(user: str) -> str:
    try:
        return check_name(user)
    except TextError as error:
        raise click.ClickException(str(error)) from None


def _entry(password: str, algorithm: str, iterations: int) -> Entry:
    try:
        if algorithm == "scram-sha-256":
            return keys_of(password, new_salt(), iterations)
        prepare(password)  # refuses characters that no line may hold; other programs hash the password unchanged
        return new_argon2id(password) if algorithm == "argon2id" else new_scrypt(password)
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
