"""Renders pages and error pages from templates, and sets their headers.

Invariant: a page runs the scripts and styles of the package and no others, and what is put into a template is escaped.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from mqttlite.build import VERSION
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.extensions.dashboard import words
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.path_prefix import root_of
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Routes

if TYPE_CHECKING:
    from jinja2 import Environment

CSP: Final = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""No inline script or style, and nothing from elsewhere."""

ASSETS: Final = "/ui/assets"

EXTENSIONS: Final = "/ui/x"
"""Below it are the pages of extensions that are not mqttlite's own."""

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

MENU: Final = (
    ("/", "Overview"),
    ("/ui/clients", "Clients"),
    ("/ui/topics", "Topics"),
    *(each for manifest in BUILT_IN.values() for each in manifest.menu),
    ("/ui/catalogue", "Catalogue"),
    ("/ui/console", "Console"),
    ("/ui/trace", "Trace"),
    ("/ui/access", "Access"),
    ("/ui/bans", "Bans, refusals"),
    ("/ui/listeners", "Listeners"),
)

PART_OF: Final = {
    "/ui/client": "/ui/clients",
    "/ui/topic": "/ui/topics",
    **{page: view for manifest in BUILT_IN.values() for page, view in manifest.part_of.items()},
}
"""Pages that the menu does not name, and the view to which each belongs."""

_FOLDERS: Final = tuple(Path(__file__).parent.parent / name for name in BUILT_IN)
"""Each extension has the templates and assets of its own pages."""


@cache
def _templates() -> "Environment":
    """The templates of all gateways of this process: each is compiled once."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # at the first page, for it takes a while

    made = Environment(
        autoescape=True,
        loader=FileSystemLoader([folder / "templates" for folder in _FOLDERS]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("number", "percent", "size", "seconds", "preview"):
        made.filters[name] = getattr(words, name)
    made.filters["when"] = lambda value: words.when(value).replace(" ", "\N{NO-BREAK SPACE}")
    made.filters["quoted"] = lambda text: quote(text, safe="")
    made.globals.update(version=VERSION, assets=ASSETS)
    return made


class Pages:
    """The pages of one gateway. `key_command` returns the command that makes an API key, for the form to log in."""

    def __init__(
        self, key_command: Callable[[Request], str], of_extensions: Mapping[str, tuple[str, Callable[[], str]]]
    ) -> None:
        self._key_command: Final = key_command
        self._of_extensions: Final = of_extensions
        self.menu: Sequence[tuple[str, str]] = MENU
        """The addresses and titles of the views that there are."""

    def render(
        self, template: str, request: Request, caller: Caller | None, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render a page. `caller` is None if the caller is not authenticated."""
        path = request.scope["path"]
        text = (
            _templates()
            .get_template(template)
            .render(
                root=root_of(request.scope),
                path=path,
                menu=[
                    *self.menu,
                    *((f"{EXTENSIONS}/{name}", title) for name, (title, _) in self._of_extensions.items()),
                ],
                view=PART_OF.get(path, path),
                caller=caller,
                has_session=caller is not None and request.app.callers.sessions.has(request),
                can_act=caller is not None and caller.may(Role.OPERATOR),
                can_change=caller is not None and caller.may(Role.ADMIN),
                **values,
            )
        )
        return HTMLResponse(text, status, headers={"Content-Security-Policy": CSP, "Referrer-Policy": "same-origin"})

    def login(self, request: Request, target: str, detail: str = "", status: int = 200) -> HTMLResponse:
        """The form to log in, which leads to `target`."""
        command = self._key_command(request)
        return self.render(
            "login.html", request, None, status=status, detail=detail, target=target, key_command=command
        )

    def problem(self, problem: Problem, request: Request) -> Response:
        """An error as a page; the form to log in where that is what is missing."""
        caller = request.scope.get("state", {}).get("caller")
        shown = caller if isinstance(caller, Caller) else None
        if problem.code in (Code.NOT_AUTHENTICATED, Code.TOO_MANY_FAILED_LOGINS):
            target = request.scope["path"] + (f"?{request.url.query}" if request.url.query else "")
            page = self.login(request, target if request.method == "GET" else "/", status=problem.status_code)
        else:
            page = self.render("problem.html", request, shown, status=problem.status_code, problem=problem)
        page.headers.update(problem.headers or {})
        return page


def redirect(path: str, **query: str) -> RedirectResponse:
    """Go to another page, after a form was sent."""
    shown = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return RedirectResponse(f"{path}?{shown}" if shown else path, 303)


def add_assets(route: Routes) -> None:
    """The scripts and styles, which are public; they are read once."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for each in (path for folder in _FOLDERS for path in folder.glob("assets/*")):
        kind = _TYPES.get(each.suffix)
        if kind is not None:
            content = each.read_bytes()
            found[each.name] = content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    @route.get(f"{ASSETS}/{{name}}", None)
    async def asset(name: str, request: Request) -> Response:
        if name not in found:
            raise Problem(Code.NOT_FOUND, "there is no file of that name")
        content, kind, etag = found[name]
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)
