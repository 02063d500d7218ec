"""The access page: policies, users, API keys, and a form to test the rules.

Invariant: a key is shown to admins, by its id, its role and its note; the key itself only in the answer to the form
that made it.
"""

from typing import Final, Literal, get_args

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.forms import field, form_of
from mqttlite.extensions.dashboard.pages import Pages, redirect
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.key_routes import KeyChanges, NewKey
from mqttlite.gateway.parameters import convert
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Routes
from mqttlite.security import rulings
from mqttlite.security.api_keys import KeyRole

ACCESS: Final = "/ui/access"

SHOWN: Final = 200
"""Policies, users and keys that the page lists, each."""

LIFETIMES: Final = {"86400": "1 day", "2592000": "30 days", "7776000": "90 days", "31622400": "1 year", "": "no end"}
"""How long a key that is made here is good, in seconds and in words."""

NOTICES: Final = {"revoked": "The key was revoked: it is refused within a second."}

Action = Literal["publish", "receive", "subscribe"]


def add(route: Routes, context: GatewayContext, pages: Pages) -> None:
    """The routes of this module."""
    config = context.config
    keys = KeyChanges(context)

    @route.get(ACCESS, Role.VIEWER)
    async def access(
        request: Request,
        caller: Caller,
        topic: str = "",
        user: str = "",
        client_id: str = "",
        action: Action = "publish",
        done: str = "",
    ) -> Response:
        rules = context.live_rules.rules
        policies = [] if rules is None else [each.options for each in rules.policies.policies]
        users = sorted(await context.user_names())
        entries = context.api_keys.entries() if caller.may(Role.ADMIN) else []
        complaint = rulings.complaint(context.core.namespaces, action, topic) if topic else ""
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
            keys=entries[:SHOWN],
            key_count=len(entries),
            can_make_keys=caller.may(Role.ADMIN) and context.api_keys.path is not None,
            key_roles=get_args(KeyRole),
            lifetimes=LIFETIMES,
            now=context.wall(context.clock()).timestamp(),
            notice_text=NOTICES.get(done, ""),
            topic=topic,
            user=user,
            client_id=client_id,
            action=action,
            complaint=complaint,
            answer=answer,
        )

    @route.post(f"{ACCESS}/keys", Role.ADMIN)
    async def make_key(request: Request, caller: Caller) -> Response:
        form = await form_of(request)
        lifetime = field(form, "lifetime_s")
        if lifetime not in LIFETIMES:
            raise Problem(Code.INVALID_VALUE, f"the lifetime is none of {', '.join(LIFETIMES.values())}")
        wanted = {
            "role": field(form, "role"),
            "user": form.get("user", "").strip() or None,
            "note": form.get("note", "").strip(),
            "lifetime_s": int(lifetime) if lifetime else None,
        }
        secret, entry = await keys.make(convert(wanted, NewKey))
        request.scope["state"]["subject"] = entry.id
        return pages.render("key.html", request, caller, secret=secret, key=entry)

    @route.post(f"{ACCESS}/revoke", Role.ADMIN)
    async def revoke_key(request: Request) -> Response:
        key_id = field(await form_of(request), "id")
        request.scope["state"]["subject"] = key_id
        await keys.revoke(key_id)
        return redirect(ACCESS, done="revoked")
