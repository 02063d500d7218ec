"""The names of Google's resources, and the topic or queue that each is.

`projects/p/topics/t` is the MQTT topic `p/t`, `projects/p/subscriptions/s` the queue `p.s`. Invariant: a project has no
dot and no slash in it, so that no name of one project is a name of another.
"""

from typing import Final

from mqttlite.extensions.queues.options import QueueOptions, check_queue_name
from mqttlite.extensions.queues.resources import subscription_resource
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.projects import ID, PROJECT, project_of

DELETED_TOPIC: Final = "_deleted-topic_"
"""The topic of a subscription whose topic was deleted."""


def check_project(project: str) -> None:
    """Raises `Problem`."""
    if not PROJECT.fullmatch(project):
        raise Problem(
            Code.INVALID_VALUE,
            f"the project is {project[:80]!r}: it has 1 to 63 letters, digits and -, and begins with a letter",
        )


def topic_name(project: str, topic: str) -> str:
    """The MQTT topic of a topic. Raises `Problem`."""
    check_project(project)
    _check_id("topic", topic)
    if "+" in topic:
        raise Problem(Code.INVALID_VALUE, f"the topic is {topic[:80]!r}: a topic of MQTT has no +")
    return f"{project}/{topic}"


def topic_resource(name: str) -> str:
    """The topic of an MQTT topic; empty where it is none."""
    project = project_of(name)
    return "" if project is None else f"projects/{project}/topics/{name[len(project) + 1 :]}"


def queue_name(project: str, subscription: str) -> str:
    """The queue of a subscription. Raises `Problem`."""
    check_project(project)
    _check_id("subscription", subscription)
    name = f"{project}.{subscription}"
    try:
        check_queue_name(name)
    except ValueError:
        raise Problem(
            Code.INVALID_VALUE,
            f"the subscription is {subscription[:80]!r}: it is the queue <project>.<subscription>, whose name has 128 "
            "letters, digits and any of . _ ~ - at most",
        ) from None
    return name


def snapshot_name(project: str, snapshot: str) -> str:
    """The broker's snapshot of one. Raises `Problem`."""
    check_project(project)
    _check_id("snapshot", snapshot)
    name = f"{project}.{snapshot}"
    try:
        check_queue_name(name)
    except ValueError as error:
        raise Problem(Code.INVALID_VALUE, f"the snapshot is {snapshot[:80]!r}: {error}") from None
    return name


def snapshot_resource(name: str) -> str:
    """The snapshot that the broker's one of this name is; empty where it is none."""
    return subscription_resource(name).replace("/subscriptions/", "/snapshots/", 1)


def topic_of_queue(options: QueueOptions) -> str:
    """The topic from which a queue has its messages, in Google's words; empty for a queue that is no subscription: one
    of several topics, or of another project's."""
    if not options.filters:
        return topic_resource(options.detached_from) or DELETED_TOPIC
    project = options.name.partition(".")[0]
    if len(options.filters) > 1 or not options.filters[0].startswith(f"{project}/"):
        return ""
    return topic_resource(options.filters[0])


def is_detached(options: QueueOptions) -> bool:
    """Whether it has no topic any more because it was detached, and not because its topic was deleted."""
    return bool(options.detached_from) and not options.filters


def topic_of_resource(resource: str, member: str = "deadLetterPolicy.deadLetterTopic") -> str:
    """The MQTT topic of a topic of any project, which a member names. Raises `Problem`."""
    parts = resource.split("/")
    if len(parts) != 4 or (parts[0], parts[2]) != ("projects", "topics"):
        raise Problem(Code.INVALID_VALUE, f"{member} is {resource[:200]!r}: projects/<project>/topics/<topic> is meant")
    return topic_name(parts[1], parts[3])


def topic_of_subscription(project: str, topic: str) -> str:
    """The MQTT topic of the topic that a new subscription of a project names. Raises `Problem`."""
    name = topic_of_resource(topic, "topic")
    if not name.startswith(f"{project}/"):
        raise Problem(
            Code.INVALID_VALUE, f"topic is {topic[:200]!r}: a subscription of {project} has a topic of {project}"
        )
    return name


def _check_id(what: str, text: str) -> None:
    _, colon, method = text.partition(":")
    if colon:  # no id has one: it is a method that no route has
        raise Problem(Code.NOT_AVAILABLE, f"{method[:80]}: the broker does not serve this method of a {what}")
    if not ID.fullmatch(text):
        raise Problem(
            Code.INVALID_VALUE,
            f"the {what} is {text[:80]!r}: it has 3 to 255 letters, digits and any of - _ . ~ + %, begins with a "
            "letter, and not with goog",
        )
