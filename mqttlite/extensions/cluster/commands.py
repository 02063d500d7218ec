"""`mqttlite cluster`: the machines of a cluster, as they say it in the engine; and a planned hand-over.

It asks the engine, so it works on any machine that has the configuration, also while no broker runs. Invariant:
`status` changes nothing.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, TypeVar

import click
import msgspec

from mqttlite.cli.ask_admin import print_answer, print_table
from mqttlite.config import ClusterOptions, ConfigError, load_config
from mqttlite.engine.port import Engine, EngineError
from mqttlite.extensions.cluster import keys
from mqttlite.extensions.cluster.connect import connect
from mqttlite.extensions.cluster.overview import SERVERS_AWAY, Overview, look
from mqttlite.security.one_line import one_line

HAND_OVER_S: Final = 30.0
"""How long to wait for another machine to serve."""

_LOOK_S: Final = 0.05

_HEADER: Final = ("MACHINE", "ROLE", "BEHIND", "SAFE UP TO", "VERSION", "SAID", "ADDRESSES")

_EPILOG: Final = """\b
Exit codes:
  0  done
  1  the engine does not answer, or no other machine could take over
  2  the configuration is wrong
"""

T = TypeVar("T")


@click.group()
def command() -> None:
    """List the machines of a cluster, or let another one serve.

    It asks the engine that the section `cluster` of the configuration names, and not the broker.
    """


_config_option = click.option(
    "-c", "--config", "path", metavar="FILE.toml", required=True, help="The configuration of a machine of the cluster."
)


@command.command("status", epilog=_EPILOG)
@_config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(path: str, as_json: bool) -> None:
    """List the machines, which one serves, how far the others are behind, and how full the log is."""
    found = _run(path, look)
    print_answer(msgspec.to_builtins(found), as_json, lambda: _say(found))


@command.command("hand-over", epilog=_EPILOG)
@_config_option
@click.option("--to", "successor", metavar="MACHINE", default="", help="The machine that is to serve.  [default: any]")
def hand_over(path: str, successor: str) -> None:
    """Let another machine serve. The one that does sends its clients away; the other goes on with their sessions."""
    began = time.monotonic()
    serving = _run(path, lambda engine: _hand_over(engine, successor))
    click.echo(f"{serving} serves, after {time.monotonic() - began:.1f} s")


async def _hand_over(engine: Engine, successor: str) -> str:
    before = await look(engine)
    if not before.serving:
        _fail(1, "no machine serves now: another takes over by itself")
    if successor == before.serving:
        _fail(1, f"{successor} serves already")
    followers = [each.node for each in before.machines if each.role == "follows" and each.node != before.serving]
    if successor and successor not in followers:
        them = ", ".join(followers) or "no machine"
        _fail(1, f"{successor} does not follow the log: {them} does", *_problems(before))
    if not followers:
        _fail(1, "no other machine follows the log: start one first", *_problems(before))
    asked = await keys.ask_to_hand_over(engine, before.turn, successor)
    deadline = time.monotonic() + HAND_OVER_S
    now = before
    while now.turn == before.turn or now.role_of(now.serving) != "serves":
        if time.monotonic() >= deadline:
            _fail(1, f"{before.serving} was asked to hand over, and no other machine serves after {HAND_OVER_S:g} s")
        await asyncio.sleep(_LOOK_S)
        refusal = await keys.refusal_of(engine, asked)
        if refusal:
            _fail(1, f"{before.serving} goes on serving: {refusal}")
        now = await look(engine)
    return now.serving


def _say(found: Overview) -> None:
    share = 100 * found.log_bytes / found.max_log_bytes if found.max_log_bytes else 0.0
    click.echo(f"{found.serving or 'nobody'} serves (turn {found.turn})")
    click.echo(
        f"the log has {found.last} records, of which {found.last - found.first + 1} are kept ({share:.0f} % full)"
    )
    if found.servers_away:
        click.echo(f"{SERVERS_AWAY}: {', '.join(found.servers_away)}")
    if found.snapshot:
        click.echo(f"the engine has a snapshot up to {found.snapshot}")
    now = time.time()
    rows = [
        (
            *(each.node, each.role, found.behind(each), each.durable, each.build),
            *(f"{max(0.0, now - each.at):.0f} s ago", " ".join(each.addresses)),
        )
        for each in found.machines
    ]
    print_table(_HEADER, rows)
    for sentence in _problems(found):
        click.echo(sentence)


def _problems(found: Overview) -> list[str]:
    """Why machines could not serve."""
    return [f"{each.node} could not serve: {each.problem}" for each in found.machines if each.problem]


def _run(path: str, ask: Callable[[Engine], Awaitable[T]]) -> T:
    try:
        options = load_config(path).cluster
        if options is None:
            _fail(2, f"{path} has no section cluster: the broker is alone")
        return asyncio.run(_ask(options, ask))
    except ConfigError as error:
        _fail(2, *error.problems)
    except (EngineError, OSError) as error:
        _fail(1, one_line(str(error)))


async def _ask(options: ClusterOptions, ask: Callable[[Engine], Awaitable[T]]) -> T:
    engine = await connect(options, creates=False)
    try:
        await engine.use_log(keys.LOG)
        return await ask(engine)
    finally:
        await engine.close()


def _fail(code: int, *sentences: str) -> NoReturn:
    for sentence in sentences:
        click.echo(f"mqttlite cluster: {sentence}", err=True)
    sys.exit(code)
