"""Reads the parameters of handlers from requests: the caller, variables of the path, the query and the body.

A parameter of a type `Struct` is the body in JSON, `Request` the request, `Caller` the caller; one with the name of a
variable of the path is that variable, and each other one a field of the query. Invariant: a handler gets values of the
types that it names; anything else is a `Problem` with the place of what is wrong.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta
from starlette.requests import Request

from mqttlite.gateway.caller import Caller
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route

T = TypeVar("T")

_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$")
_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`")


class Parameters:
    """The parameters of one handler."""

    def __init__(self, route: Route) -> None:
        self.body: tuple[str, type[msgspec.Struct]] | None = None
        """The name of the parameter, and its type."""
        self._caller = ""
        self._request = ""
        fields: dict[str, list[Any]] = {"path": [], "query": []}
        signature = inspect.signature(route.handler)
        for name, parameter in signature.parameters.items():
            kind = parameter.annotation
            if kind is Caller:
                self._caller = name
            elif kind is Request:
                self._request = name
            elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                self.body = name, kind
            else:
                options: dict[str, Any] = {"name": name_of(name, kind)}
                if parameter.default is not parameter.empty:
                    options["default"] = parameter.default
                where = "path" if name in route.variables else "query"
                fields[where].append((name, kind, msgspec.field(**options)))
        self.path: Final = msgspec.defstruct("path", fields["path"], kw_only=True)
        self.query: Final = msgspec.defstruct("query", fields["query"], kw_only=True)
        self._lists: Final = {name_of(name, kind) for name, kind, _ in fields["query"] if is_list(kind)}
        self.fields: Final = [
            *(("path", field) for field in msgspec.structs.fields(self.path)),
            *(("query", field) for field in msgspec.structs.fields(self.query)),
        ]
        """The variables of the path, and the fields of the query."""
        self.answer: Final[Any] = signature.return_annotation

    async def read(self, request: Request, caller: Caller | None, variables: Mapping[str, str]) -> dict[str, Any]:
        """The arguments for the handler. Raises `Problem`."""
        found: dict[str, Any] = {}
        if self._caller:
            found[self._caller] = caller
        if self._request:
            found[self._request] = request
        if self.path.__struct_fields__:
            found |= msgspec.structs.asdict(convert(variables, self.path, "path"))
        if self.query.__struct_fields__:
            given = request.query_params
            values = {name: given.getlist(name) if name in self._lists else given[name] for name in given}
            found |= msgspec.structs.asdict(convert(values, self.query, "query"))
        if self.body is not None:
            name, kind = self.body
            found[name] = await _read_body(request, kind)
        return found


def convert(values: Mapping[str, Any], kind: type[T], where: str = "") -> T:
    """A `Struct` of texts or values. Raises `Problem`, which names the place, as one in `where`."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, where, kind) from None


def invalid(error: msgspec.ValidationError, where: str, kind: Any) -> Problem:
    """The mistake in a value of a request, and its place."""
    text = str(error)
    place = _PLACE.search(text)
    at, message = ("", text) if place is None else (place[1], text[: place.start()])
    if field := _FIELD.match(message):
        at = f"{at}.{field[2]}" if at else field[2]
        message = "it is missing" if field[1] == "missing required" else "there is no such member"
    elif message.startswith("Invalid enum value") and at in (allowed := _choices(kind)):
        message = f"{message}: it may be {allowed[at]}"
    at = ".".join(each for each in (where, re.sub(r"\[(\d+)\]", r".\1", at)) if each)
    return Problem(Code.INVALID_VALUE, f"{at}: {message}", errors=[{"at": at, "message": message}])


async def _read_body(request: Request, kind: type[T]) -> T:
    """The body of a request. Raises `Problem`."""
    media_type, _, _ = request.headers.get("content-type", "").partition(";")
    if not media_type.strip().lower().endswith(("/json", "+json")):
        raise Problem(Code.INVALID_VALUE, "body: it is JSON: send the header Content-Type: application/json")
    return decoded(await request.body(), kind, "body")


def decoded(text: bytes | str, kind: type[T], where: str) -> T:
    """A `Struct` of JSON. Raises `Problem`, which names the place, as one in `where`."""
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, where, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(Code.BAD_REQUEST, f"{where}: this is no JSON: {error}") from None


def name_of(name: str, kind: Any) -> str:
    """The name of a parameter in requests: its own, or the `name` in the `extra` of its type."""
    for each in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
        if isinstance(each, Meta) and each.extra is not None:
            name = each.extra["name"]
    return name


def is_list(kind: Any) -> bool:
    """Whether a field of a query may come several times."""
    inner = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_origin(inner) is Sequence


def _choices(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """The values that members of a body or query may have, where those are few."""
    found: dict[str, str] = {}
    for each in msgspec.structs.fields(kind):
        inner: Any = each.type
        if get_origin(inner) is Annotated:
            inner = get_args(inner)[0]
        texts = [repr(value) for value in get_args(inner) if isinstance(value, str)]
        if texts:
            found[each.encode_name] = ", ".join(texts[:-1]) + f" or {texts[-1]}" if len(texts) > 1 else texts[0]
    return found
