"""The names of Google's resources that a queue has: `projects/p/subscriptions/s` is the queue `p.s`."""

import re
from typing import Final

PROJECT: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
ID: Final = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~%+-]{2,254}")
"""As Google says of the ids of topics and subscriptions."""


def subscription_resource(name: str) -> str:
    """The subscription that a queue of this name is; empty where it is none."""
    project, dot, subscription = name.partition(".")
    if not dot or not PROJECT.fullmatch(project) or not ID.fullmatch(subscription):
        return ""
    return f"projects/{project}/subscriptions/{subscription}"


def subscription_name(name: str) -> str:
    """What pushed messages say of their queue: its subscription, or where it is none what MQTT clients call it."""
    return subscription_resource(name) or f"$queue/{name}"
