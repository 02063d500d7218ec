"""Reads a JSON file of the data directory into a struct, with an error that says what to do.

Invariant: a file that cannot be used raises the caller's error and nothing else.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from mqttlite.security.one_line import one_line

T = TypeVar("T", bound=msgspec.Struct)


def load(path: Path, kind: type[T], error: type[Exception], *, max_bytes: int, content: str, advice: str) -> T | None:
    """The struct in a file; None if there is no file. Raises `error` with a sentence.

    `content` names the records, for example "API keys"; `advice` says what to do with a damaged file.
    """
    try:
        if path.stat().st_size > max_bytes:
            raise error(f"{path} is larger than {max_bytes} bytes: it is no file of {content}")
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise error(f"{path} is no file of {content}: {one_line(str(failure))}. Put back a copy, or {advice}") from None
