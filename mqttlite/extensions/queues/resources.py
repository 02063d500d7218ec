"""Maps queues to Google's resource names: `projects/p/subscriptions/s` is the queue `p.s`."""

from mqttlite.gateway.projects import ID, PROJECT


def subscription_resource(name: str) -> str:
    """The subscription resource of a queue name; empty if it is not one."""
    project, dot, subscription = name.partition(".")
    if not dot or not PROJECT.fullmatch(project) or not ID.fullmatch(subscription):
        return ""
    return f"projects/{project}/subscriptions/{subscription}"


def subscription_name(name: str) -> str:
    """The subscription name in pushed messages: the resource name, or `$queue/<name>`."""
    return subscription_resource(name) or f"$queue/{name}"
