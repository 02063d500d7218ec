"""The command that makes an API key, for the form to log in.

Invariant: paths of this machine are shown only to a browser on this machine.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from starlette.requests import Request

from mqttlite.config.checks import api_key_file
from mqttlite.gateway.context import GatewayContext

_OF_PROXIES: Final = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""Headers with which a proxy says that it passes on a request."""


def key_command(context: GatewayContext, request: Request) -> str:
    """The command, with its path and the place of the keys. Empty if the broker keeps no keys."""
    file = api_key_file(context.config)
    if file is None:
        return ""
    if not context.is_local or any(name in request.headers for name in _OF_PROXIES):
        return "mqttlite token new --role viewer"
    if context.options.api_key_file is None:
        return f"{_program()} token new --role viewer --data-dir {shlex.quote(str(file.parent.absolute()))}"
    return f"{_program()} token new --role viewer --file {shlex.quote(str(file.absolute()))}"


def _program() -> str:
    """How to run `mqttlite` from a shell: by its name if that finds the installation of this broker."""
    program = Path(sys.executable).with_name("mqttlite")
    if not os.access(program, os.X_OK):
        return f"{shlex.quote(sys.executable)} -m mqttlite"
    found = shutil.which("mqttlite")
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(program)
    return "mqttlite" if is_found else shlex.quote(str(program))
