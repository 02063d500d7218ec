"""Whether a session may read a stream by the rules in force."""

from typing import Final, final

from mqttlite.core.authorizer import SUBSCRIBE
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.session.session import Session


@final
class ReadingRight:
    """Asks the rules once after each change of them, or of the role of the session."""

    __slots__ = ("_is_given", "_permissions", "_role", "_rules", "_session", "_topic")

    def __init__(self, session: Session, topic: bytes, permissions: Permissions) -> None:
        self._session: Final = session
        self._topic: Final = topic
        self._permissions: Final = permissions
        self._rules = -1
        self._role = 0
        self._is_given = True

    def is_given(self) -> bool:
        """Whether the session may subscribe to the stream."""
        permissions, session = self._permissions, self._session
        if not permissions.restricts or session.identity.is_trusted:
            return True
        role = permissions.role_of(session)
        if self._rules != permissions.rules or self._role != role:
            self._rules, self._role = permissions.rules, role
            self._is_given = permissions.may_subscribe(session, self._topic)
            if not self._is_given:
                permissions.deny(session, SUBSCRIBE, self._topic)
        return self._is_given
