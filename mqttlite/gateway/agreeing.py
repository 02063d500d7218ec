"""Gives a change that a request makes to the other nodes, and says in HTTP why they cannot have it."""

from collections.abc import Iterator
from contextlib import contextmanager

from mqttlite.files.shared_document import ChangedElsewhere, NotAgreed, SharedDocument
from mqttlite.gateway.problems import Code, Problem


@contextmanager
def agreeing() -> Iterator[None]:
    """What raises `NotAgreed` in it raises `Problem`."""
    try:
        yield
    except ChangedElsewhere as error:
        raise Problem(Code.CONFLICT, str(error)) from None
    except NotAgreed as error:
        raise Problem(Code.BUSY, str(error)) from None


async def agree(document: SharedDocument, content: bytes) -> None:
    """As `SharedDocument.agree`. Raises `Problem`: then the change may not be made."""
    with agreeing():
        await document.agree(content)
