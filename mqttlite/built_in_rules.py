"""The built-in rules, with what the features add to them."""

from mqttlite.core.authorizer import Authorizer
from mqttlite.core.rights import Right
from mqttlite.delivery.queues import namespace as queues
from mqttlite.extensions import sparkplug as certificates
from mqttlite.security.default_rules import DefaultRules
from mqttlite.telemetry.presence_topics import presence_subject


def built_in_rules(
    analysts: frozenset[str] = frozenset(),
    authorizer: Authorizer | None = None,
    *,
    bridges: bool = False,
    sparkplug: bool = False,
) -> DefaultRules:
    """The rules of a broker around those of `authorizer`: see `DefaultRules`. With `sparkplug` it keeps certificates of
    Sparkplug."""
    right_of, subject_of = queues.right_of, presence_subject
    if sparkplug:
        right_of, subject_of = _right_of, _subject_of
    return DefaultRules(analysts, authorizer, bridges=bridges, right_of=right_of, subject_of=subject_of)


def _right_of(topic: bytes) -> Right | None:
    return queues.right_of(topic) or certificates.right_of(topic)


def _subject_of(topic: bytes) -> bytes:
    return presence_subject(topic) or certificates.subject_of(topic)
