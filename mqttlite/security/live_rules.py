"""The rules of a running broker: reloads the ACL file when it changes, and gives the broker the new rules.

`rules` evaluates them. Invariant: an unusable file changes nothing, and is logged once.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from mqttlite.files.atomic_file import save
from mqttlite.files.file_version import version_of
from mqttlite.files.shared_document import SharedDocument
from mqttlite.security.acl_file import AclFile, AclFileError, AclFileUnreadable, load, parse
from mqttlite.security.role_numbers import nothing
from mqttlite.security.rules import NO_PERMISSIONS, Rules
from mqttlite.security.topic_policies import CheckOf, TopicPolicyOptions

POLL_S: Final = 0.5
"""The interval between checks of the file: a change is in force within a second, including the time to read 10,000
rules."""

_log = logging.getLogger("mqttlite.security")


class LiveRules:
    """`rules` is None without ACL file and policies. `on_rules` is called with new rules."""

    def __init__(
        self,
        acl_file: str | None,
        policies: Sequence[TopicPolicyOptions],
        groups: Mapping[str, Collection[str]],
        *,
        on_rules: Callable[[Rules | None], None],
        roles_in_use: Callable[[], Collection[int]],
        max_roles: int,
        on_forgotten: Callable[[], None] = nothing,
        topics: Sequence[TopicPolicyOptions] = (),
        check_of: CheckOf | None = None,
    ) -> None:
        """`topics` are further policies, of topics made over HTTP. Raises `AclFileError`."""
        self._acl_file = acl_file
        self._policies = policies
        self._topics = topics
        self._groups = groups
        self._on_rules: Final = on_rules
        self._roles_in_use: Final = roles_in_use
        self._max_roles: Final = max_roles
        self._on_forgotten: Final = on_forgotten
        self._check_of: Final = check_of
        self._numbers_of_roles: Final = count(NO_PERMISSIONS + 1)
        self._has_file: Final = asyncio.Event()
        self.document: Final = SharedDocument(
            *("acl", self._check, self._replace), path=None, lock=asyncio.Lock(), reload=lambda _content: self.reload()
        )
        self._note_file()
        self._seen = version_of(acl_file)
        self._complaint = ""
        self._reading: Final = asyncio.Lock()
        self.rules: Rules | None = self._load()

    async def use(
        self,
        acl_file: str | None,
        policies: Sequence[TopicPolicyOptions],
        groups: Mapping[str, Collection[str]],
    ) -> None:
        """Use another file, other policies and groups, unless the file is unusable. Log the result."""
        async with self._reading:
            former = self._acl_file, self._policies, self._groups
            self._acl_file, self._policies, self._groups = acl_file, policies, groups
            self._complaint = ""  # so that an error is logged again
            if not await self._read_again():
                self._acl_file, self._policies, self._groups = former
            self._note_file()

    @property
    def acl_file(self) -> str | None:
        """The ACL file in use."""
        return self._acl_file

    @property
    def groups(self) -> Mapping[str, Collection[str]]:
        """The users of each group in the configuration."""
        return self._groups

    @property
    def policies(self) -> Sequence[TopicPolicyOptions]:
        """The policies of the configuration."""
        return self._policies

    async def use_topics(self, topics: Sequence[TopicPolicyOptions]) -> bool:
        """Use other policies of topics created over HTTP. False if the ACL file is unusable now; the rules then
        stay."""
        async with self._reading:
            former, self._topics = self._topics, topics
            if await self._read_again():
                return True
            self._topics = former
            return False

    async def reload(self) -> None:
        """Read the file now, changed or not. Log the result."""
        if self._acl_file is not None:
            async with self._reading:
                self._complaint = ""
                await self._read_again()

    async def replace_file(self, content: bytes) -> int:
        """Write other rules to the file and put them into force. Return how many there are.

        Raises `AclFileError` for invalid rules, `OSError`, and `NotAgreed`; all change nothing.
        """
        path = self._acl_file
        assert path is not None, "the caller asked for it"
        try:
            lines = content.decode().split("\n")
        except UnicodeDecodeError:
            raise AclFileError("the rules are not UTF-8") from None
        found = await asyncio.to_thread(parse, lines, os.path.basename(path))
        async with self.document.lock:
            await self.document.agree(content)
            await self._replace(content)
        return len(found)

    def _check(self, content: bytes) -> None:
        """Raises ValueError for what is no ACL file."""
        parse(content.decode().split("\n"), os.path.basename(self._acl_file or ""))

    async def _replace(self, content: bytes) -> None:
        """Raises `OSError`."""
        if self._acl_file is None:  # since a reload
            return
        async with self._reading:
            await asyncio.to_thread(save, Path(self._acl_file), content)
            self._complaint = ""
            await self._read_again()

    async def watch(self) -> None:
        """Read the file whenever it changes, until the task is cancelled."""
        while True:
            await self._has_file.wait()
            await asyncio.sleep(POLL_S)
            if await asyncio.to_thread(version_of, self._acl_file) != self._seen:
                async with self._reading:
                    if version_of(self._acl_file) != self._seen:  # equal: a reload has read it meanwhile
                        await self._read_again()

    def _note_file(self) -> None:
        self.document.path = None if self._acl_file is None else Path(self._acl_file)
        self.document.is_used = self._acl_file is not None
        if self._acl_file is None:
            self._has_file.clear()
        else:
            self._has_file.set()

    async def _read_again(self) -> bool:
        """Whether new rules are in force."""
        seen = version_of(self._acl_file)
        try:
            rules = await asyncio.to_thread(self._load)
        except AclFileError as error:
            complaint = str(error)
            if complaint != self._complaint:
                for problem in error.problems:
                    _log.error("the rules stay as they were: %s", problem)
            self._complaint = complaint
            if not isinstance(error, AclFileUnreadable):
                self._seen = seen
            return False
        self._complaint, self._seen = "", seen
        former = [self.rules]
        self.rules = rules
        self._on_rules(rules)
        if self._acl_file is not None:
            count = 0 if rules is None or rules.acl is None else len(rules.acl)
            _log.info("%s was read again: %d rules", self._acl_file, count)
        asyncio.get_running_loop().run_in_executor(None, _let_go, former)
        return True

    def _load(self) -> Rules | None:
        acl: AclFile | None = None
        if self._acl_file is not None:
            acl = load(self._acl_file)
        elif not self._policies and not self._topics:
            return None
        return Rules(
            *(acl, [*self._policies, *self._topics], self._groups),
            roles_in_use=self._roles_in_use,
            max_roles=self._max_roles,
            on_forgotten=self._on_forgotten,
            numbers=self._numbers_of_roles,
            check_of=self._check_of,
        )


def _let_go(former: list[Rules | None]) -> None:
    """Free rules in small parts, in a thread. Freeing 100,000 at once would block everything for a tenth of a
    second."""
    rules = former.pop()
    parts = [] if rules is None else rules.parts()
    del rules
    while parts:
        parts.pop()
