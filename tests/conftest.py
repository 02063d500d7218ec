"""How long hypothesis searches: `--hypothesis-profile=quick` is what tools/check says. And signals that reach children.

A shell lets what it runs in the background ignore SIGINT, and children would go on ignoring it.
"""

import signal

from tests.support.examples import register

register()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
