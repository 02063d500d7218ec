"""The HTTP gateway for browsers, scripts and operators: publish, subscribe, topics, and more features.

Needs the extra `gateway`. To add routes, write a module with a function that takes the `GatewayContext` and returns
`routing.Route`s, and add it to `app.FEATURES`. A route names the role that it requires, `problems.Problem` answers with
an error. Invariant: nothing here delivers messages itself: for the core, an HTTP
subscriber is an ordinary client on a local link.
"""
