"""Reads the fields of a submitted form.

Invariant: a form has `MAX_FIELDS` at most, each once.
"""

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from mqttlite.gateway.problems import Code, Problem

MAX_FIELDS: Final = 20
"""The largest form of the dashboard has less than half of it."""

FORM: Final = "application/x-www-form-urlencoded"


async def form_of(request: Request) -> dict[str, str]:
    """The fields by name. Raises `Problem`."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != FORM:
        raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, f"a form is sent as {FORM}")
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise Problem(Code.BAD_REQUEST, f"this is no form in UTF-8 with {MAX_FIELDS} fields at most") from None


def field(form: dict[str, str], name: str) -> str:
    """A field that must be there. Raises `Problem`."""
    if name not in form:
        raise Problem(Code.INVALID_VALUE, f"the form has no field {name}")
    return form[name]
