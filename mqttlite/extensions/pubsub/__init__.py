"""`/v1/projects`: topics and queues in the shape of Google Pub/Sub's REST API, for programs that speak that.

`topics`, `subscriptions` and `snapshots` have the routes, `names` says which topic and queue a resource is.
`bodies` has the JSON, `errors` Google's form of a problem, `not_served` the methods that are refused. Invariant: what
is not served is refused by name, and never accepted and ignored.
"""
