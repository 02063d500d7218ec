"""The built-in rules, with what the features add to them."""

from mqttlite.core.authorizer import Authorizer
from mqttlite.delivery.queues.namespace import right_of
from mqttlite.security.default_rules import DefaultRules
from mqttlite.telemetry.presence_topics import presence_subject


def built_in_rules(
    analysts: frozenset[str] = frozenset(), authorizer: Authorizer | None = None, *, bridges: bool = False
) -> DefaultRules:
    """The rules of a broker around those of `authorizer`: see `DefaultRules`."""
    return DefaultRules(analysts, authorizer, bridges=bridges, right_of=right_of, subject_of=presence_subject)
