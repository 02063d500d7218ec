"""The built-in rules, with what the features add to them."""

from collections.abc import Callable, Iterable
from typing import Any

from mqttlite.core.authorizer import Authorizer
from mqttlite.extensions.built_in import ALWAYS_ON, resolve
from mqttlite.extensions.manifest import Manifest
from mqttlite.security.default_rules import DefaultRules


def built_in_rules(
    analysts: frozenset[str] = frozenset(),
    authorizer: Authorizer | None = None,
    *,
    bridges: bool = False,
    extensions: Iterable[Manifest] = ALWAYS_ON,
) -> DefaultRules:
    """The rules of a broker around those of `authorizer`: see `DefaultRules`."""
    extensions = tuple(extensions)
    rights = [resolve(each.right_of) for each in extensions if each.right_of]
    subjects = [resolve(each.subject_of) for each in extensions if each.subject_of]
    return DefaultRules(
        *(analysts, authorizer), bridges=bridges, right_of=_first(rights, None), subject_of=_first(subjects, b"")
    )


def _first(functions: list[Callable[[bytes], Any]], otherwise: object) -> Callable[[bytes], Any]:
    """A function that gives the first answer that one of them has for a topic."""
    if len(functions) == 1:
        return functions[0]

    def answer(topic: bytes) -> Any:
        for each in functions:
            found = each(topic)
            if found:
                return found
        return otherwise

    return answer
