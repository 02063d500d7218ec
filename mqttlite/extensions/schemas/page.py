"""The dashboard's page of one schema. Invariant: it shows what `/registry` answers, and changes nothing."""

import json

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.dashboard import Dashboard
from mqttlite.extensions.schemas.registry import LATEST, RegistryError
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.problems import Code, Problem


def add(dashboard: Dashboard) -> None:
    """The route of this module."""
    context, pages = dashboard.context, dashboard.pages

    @dashboard.shown.get("/ui/schema", Role.VIEWER)
    async def schema(request: Request, caller: Caller, subject: str, version: int = LATEST) -> Response:
        assert context.schemas is not None, "the page belongs to them"
        registry = context.schemas.registry
        try:
            found = registry.version(subject, version)
            versions = registry.subject(subject).live()
            level = registry.level(subject)
            text = registry.schema(found.schema_id)
        except RegistryError as error:
            raise Problem(Code.NOT_FOUND, str(error)) from None
        return pages.render(
            "schema.html",
            request,
            caller,
            subject=subject,
            version=found,
            versions=versions,
            level=level,
            schema_type=text.type,
            text=_indented(text.text),
        )


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
