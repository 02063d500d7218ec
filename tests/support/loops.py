"""uvloop where it is installed: the broker runs without it, and so do the tests."""

import asyncio
from typing import Final

try:
    import uvloop
except ImportError:
    HAS_UVLOOP: Final = False
    new_event_loop = asyncio.new_event_loop
else:
    HAS_UVLOOP = True
    new_event_loop = uvloop.new_event_loop
