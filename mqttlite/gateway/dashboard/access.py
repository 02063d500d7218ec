"""Who may do what: policies, users, API keys, and a form to ask the rules.

Invariant: a key is shown by its id, its role and its note; the key itself is known to nobody here.
"""

import asyncio
from typing import Final, Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.gateway.caller import Admin, Viewer
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.dashboard import rulings
from mqttlite.gateway.dashboard.forms import field, form_of
from mqttlite.gateway.dashboard.pages import Pages, redirect
from mqttlite.gateway.problems import Code, Problem
from mqttlite.security.api_keys import ApiKeyFileError, revoke

ACCESS: Final = "/ui/access"

SHOWN: Final = 200
"""Policies, users and keys that the page lists, each."""

NOTICES: Final = {"revoked": "The key was revoked: it is refused within a second."}

Action = Literal["publish", "receive", "subscribe"]


def add(routes: APIRouter, context: GatewayContext, pages: Pages) -> None:
    """The routes of this module."""
    config = context.config

    @routes.get(ACCESS)
    async def access(
        request: Request,
        caller: Viewer,
        topic: str = "",
        user: str = "",
        client_id: str = "",
        action: Action = "publish",
        done: str = "",
    ) -> Response:
        rules = context.live_rules.rules
        policies = [] if rules is None else [each.options for each in rules.policies.policies]
        users = sorted(await context.user_names())
        keys = context.api_keys.entries()
        complaint = rulings.complaint(action, topic) if topic else ""
        answer = None
        if topic and not complaint:
            answer = rulings.ask(context.core, action, topic, user or None, client_id)
        roles = {name: role for role, names in context.options.roles.items() for name in names}
        return pages.render(
            "access.html",
            request,
            caller,
            policies=policies[:SHOWN],
            policy_count=len(policies),
            acl_file=config.acl_file,
            has_dynamic_security=config.dynamic_security is not None,
            groups=config.groups,
            users=users[:SHOWN],
            user_count=len(users),
            roles=roles,
            keys=keys[:SHOWN],
            key_count=len(keys),
            notice_text=NOTICES.get(done, ""),
            topic=topic,
            user=user,
            client_id=client_id,
            action=action,
            complaint=complaint,
            answer=answer,
        )

    @routes.post(f"{ACCESS}/revoke")
    async def revoke_key(request: Request, _caller: Admin) -> Response:
        key_id = field(await form_of(request), "id")
        request.scope["state"]["subject"] = key_id
        path = context.api_keys.path
        try:
            is_revoked = path is not None and await asyncio.to_thread(revoke, path, key_id)
        except ApiKeyFileError as error:
            raise Problem(Code.INTERNAL_ERROR, str(error)) from None
        if not is_revoked:
            raise Problem(Code.NOT_FOUND, f"there is no API key {key_id[:80]!r}")
        return redirect(ACCESS, done="revoked")
