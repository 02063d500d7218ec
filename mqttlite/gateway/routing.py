"""The table of routes: one `Route` for each, from which the application, OpenAPI, `/docs` and the tests are made.

A feature's module makes its routes with `Routes`, in the style of a decorator. Invariant: a route names its role, and
the application admits its caller before the handler runs.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.gateway.caller import Role
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.problems import Code, Problem


class ServedOn(Flag):
    """The listeners of the HTTP application."""

    GATEWAY = auto()
    """That of the section `http`."""
    ADMIN_SOCKET = auto()
    """The Unix socket in the data directory, for the commands."""
    METRICS_PORT = auto()
    """That of the section `metrics`, for scrapers and supervisors."""


OPERATORS: Final = ServedOn.GATEWAY | ServedOn.ADMIN_SOCKET
"""Routes that the commands ask, too."""


WEBSOCKET: Final = "(WebSocket)"
"""Stands for the method of a route that is a WebSocket: no request has a method like that."""

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")

_VARIABLE: Final = re.compile(r"\{(\w+)(:path)?\}")

Handler = Callable[..., Awaitable[Any]]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Route:
    """One method of one path."""

    method: str
    path: str
    """With variables: `{name}` is one segment, and `{name:path}` any text."""
    role: Role | None
    """None: it is public."""
    handler: Handler
    """Called with what its parameters name (`parameters`); its docstring describes the route."""
    summary: str = ""
    """A route without one is not in the OpenAPI document."""
    tag: str = ""
    """The group to which it belongs."""
    status: int = 200
    body: Any = None
    """The type of the body of a handler that reads it itself."""
    answer: Any = None
    """The type of the answer of a handler that makes it itself."""
    operation: Mapping[str, Any] = field(default_factory=dict)
    """Members of the operation in OpenAPI that do not follow from the handler."""
    is_traffic: bool = False
    """Whether it carries messages: the route changes nothing of the broker and has no line in the audit log."""
    is_bare: bool = False
    """Whether the handler is called with the caller, the variable part of the path, and ASGI's three arguments. It
    reads its body itself. Publishing and streams are bare, for speed."""
    takes_token: bool = False
    """Whether `?token=` is a login here, for pages that send no header."""
    is_counted: bool = True
    """Whether requests count in `requests_per_s`; those that publish count in the quotas."""
    served_on: ServedOn = ServedOn.GATEWAY
    """The listeners that serve it. A request for one of `OPERATORS` may name another node."""
    reach: Reach = Reach.HERE
    """About which nodes it is otherwise."""
    thing: str = ""
    """For `Reach.THING`, the path whose GET says whether a node has what the path names; empty: the path up to its
    first variable."""
    check: Handler | None = None
    """Called as `handler` is before a request goes to the node that it names; raises `Problem` for what the caller may
    not do at any node."""
    on_problem: Callable[[Problem, Request], Response] | None = None
    """Makes the answer to a problem, where that is no `application/problem+json`."""

    @property
    def shown_path(self) -> str:
        """The path in the words of OpenAPI."""
        return _VARIABLE.sub(r"{\1}", self.path)

    @property
    def path_of_thing(self) -> str:
        """`thing`, also where it is empty."""
        return self.thing or self.path[: self.path.index("}") + 1]

    @property
    def variables(self) -> Sequence[str]:
        """The names of the variables of the path."""
        return [name for name, _ in _VARIABLE.findall(self.path)]


class Routes:
    """Collects the routes of one feature. A decorator takes the path, the role and the summary, and other members of
    `Route` by name."""

    def __init__(self, prefix: str = "", tag: str = "", **common: Any) -> None:
        self._prefix: Final = prefix
        self._common: Final = {"tag": tag, **common}
        self.made: Final[list[Route]] = []

    def add(self, method: str, path: str, role: Role | None, summary: str = "", **more: Any) -> Callable[[H], H]:
        """Add the decorated handler."""

        def decorate(handler: H) -> H:
            members = {**self._common, **more}
            self.made.append(
                Route(method=method, path=self._prefix + path, role=role, handler=handler, summary=summary, **members)
            )
            return handler

        return decorate

    def get(self, path: str, role: Role | None, summary: str = "", **more: Any) -> Callable[[H], H]:
        return self.add("GET", path, role, summary, **more)

    def post(self, path: str, role: Role | None, summary: str = "", **more: Any) -> Callable[[H], H]:
        return self.add("POST", path, role, summary, **more)

    def put(self, path: str, role: Role | None, summary: str = "", **more: Any) -> Callable[[H], H]:
        return self.add("PUT", path, role, summary, **more)

    def patch(self, path: str, role: Role | None, summary: str = "", **more: Any) -> Callable[[H], H]:
        return self.add("PATCH", path, role, summary, **more)

    def delete(self, path: str, role: Role | None, summary: str = "", **more: Any) -> Callable[[H], H]:
        return self.add("DELETE", path, role, summary, **more)


class PathPattern:
    """Matches the path of a route. Its expression is compiled at the first request that may be for it: compiling those
    of 190 routes takes 20 ms."""

    __slots__ = ("_expression", "_path", "_prefix")

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._prefix: Final = path.partition("{")[0]
        self._expression: re.Pattern[str] | None = None

    def match(self, path: str) -> dict[str, str] | None:
        """The variables of a path; None if the route is not for it."""
        if not path.startswith(self._prefix):
            return None
        if self._prefix == self._path:
            return {} if path == self._path else None
        if self._expression is None:
            self._expression = re.compile(_expression_of(self._path), re.DOTALL)
        found = self._expression.fullmatch(path)
        return None if found is None else found.groupdict()


class Table:
    """The routes of one application, by method. The first that matches a path answers. `catalogue` says where the paths
    are listed."""

    def __init__(self, catalogue: str = "/docs lists what there is") -> None:
        self._catalogue: Final = catalogue
        self._by_method: Final[dict[str, list[tuple[PathPattern, Route]]]] = {}

    @property
    def routes(self) -> list[Route]:
        """All of them."""
        return [route for entries in self._by_method.values() for _, route in entries]

    def get(self, path: str) -> Route:
        """The GET of a path with these variables."""
        return next(route for _, route in self._by_method["GET"] if route.path == path)

    def add(self, routes: Sequence[Route]) -> None:
        """Put routes behind those that are there."""
        for route in routes:
            self._by_method.setdefault(route.method, []).append((PathPattern(route.path), route))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route for a request, and the variables of its path. Raises `Problem`."""
        for pattern, route in self._by_method.get(method, ()):
            variables = pattern.match(path)
            if variables is not None:
                return route, variables
        if method == WEBSOCKET:
            raise Problem(Code.NOT_FOUND, "there is no WebSocket at this path")
        allowed = [
            each
            for each in METHODS
            if any(pattern.match(path) is not None for pattern, _ in self._by_method.get(each, ()))
        ]
        if allowed:
            headers = {"Allow": ", ".join(allowed).replace("GET", "GET, HEAD")}
            detail = f"this path has the methods {headers['Allow']}"
            raise Problem(Code.METHOD_NOT_ALLOWED, detail, headers=headers)
        raise Problem(Code.NOT_FOUND, f"there is nothing at this path; {self._catalogue}")


def _expression_of(path: str) -> str:
    found = ""
    end = 0
    for variable in _VARIABLE.finditer(path):
        found += re.escape(path[end : variable.start()])
        found += f"(?P<{variable[1]}>{'.*' if variable[2] else '[^/]+'})"
        end = variable.end()
    return found + re.escape(path[end:])
