"""The HTTP gateway for browsers, scripts and operators: publish, subscribe, topics, and more routers.

Needs the extra `gateway`. To add routes, write a module with a function that takes the `GatewayContext` and returns a
FastAPI `APIRouter`, and add it to `app.ROUTERS`. `caller.require` sets the role that a route requires,
`problems.Problem` answers with an error. Invariant: nothing here delivers messages itself: for the core, an HTTP
subscriber is an ordinary client on a local link.
"""
