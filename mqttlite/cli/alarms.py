"""`mqttlite alarms`: what is wrong at a running broker, or at all nodes of which it is one."""

from typing import Any, Final

import click

from mqttlite.cli.ask_admin import EPILOG, Asker, print_answer, print_entries, remote_options, time_of

_HEADER: Final = ("ALARM", "SINCE", "WHAT")


@click.command(epilog=EPILOG)
@remote_options
def command(as_json: bool, client: Asker) -> None:
    """List the alarms that are active, at all nodes.

    Each is also the retained message `$SYS/broker/alarms/ALARM` of its node.
    """
    found = client.whole("alarms")
    print_answer(found, as_json, lambda: print_entries(_HEADER, found["entries"], _row))


def _row(alarm: dict[str, Any]) -> tuple[object, ...]:
    return alarm["alarm"], time_of(alarm["since"]), alarm["detail"]
