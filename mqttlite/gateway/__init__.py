"""HTTP for browsers, scripts and operators: publish, subscribe, topics, and whatever other routers add.

Needs the extra `gateway`. To add routes, write a module with a function that takes the `GatewayContext` and returns a
FastAPI `APIRouter`, and name it in `app.ROUTERS`. `caller.require` says which role a route asks for,
`problems.Problem` answers with an error. Invariant: nothing here delivers messages by itself: a subscriber over HTTP
is a client on a local link, like any other to the core.
"""
