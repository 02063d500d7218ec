"""The IAM policies that were set on topics, subscriptions and snapshots: kept in the data directory, and given back.

Nobody may do anything by them: ACL file, topic policies and roles decide (docs/design/075). Invariant: the file is
replaced whole, and a policy goes with its resource.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from mqttlite.extensions.pubsub.names import snapshot_resource
from mqttlite.extensions.queues.resources import subscription_resource
from mqttlite.extensions.queues.service import Queues
from mqttlite.files import atomic_file
from mqttlite.gateway.problems import Code, Problem

_log = logging.getLogger("mqttlite.gateway")

FILE_NAME: Final = "iam.json"
"""In the data directory."""

MAX_POLICIES: Final = 10_000
"""As many as there may be topics."""

MAX_MEMBERS: Final = 1_500
"""Of one policy, in all bindings, as with Google."""

MAX_TEXT: Final = 1_000
"""Characters of a role or member."""


class Binding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who has a role."""

    role: str = ""
    members: list[str] = []
    condition: Any = None


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one resource."""

    version: int = 1
    bindings: list[Binding] = []
    etag: str = ""

    def check(self) -> None:
        """Raises `Problem`."""
        if self.version not in (0, 1):
            raise Problem(Code.INVALID_VALUE, f"policy.version is {self.version}: without conditions it is 1")
        members = [each for binding in self.bindings for each in binding.members]
        if len(members) > MAX_MEMBERS or len(self.bindings) > MAX_MEMBERS:
            raise Problem(Code.INVALID_VALUE, f"policy has {len(members)} members: {MAX_MEMBERS} at most")
        for binding in self.bindings:
            if binding.condition:
                raise Problem(Code.NOT_AVAILABLE, "policy.bindings.condition: there are no conditions")
            if not binding.role.startswith(("roles/", "projects/", "organizations/")) or len(binding.role) > MAX_TEXT:
                raise Problem(Code.INVALID_VALUE, f"policy.bindings.role is {binding.role[:80]!r}: roles/… is meant")
        for each in members:
            if not (each in ("allUsers", "allAuthenticatedUsers") or ":" in each) or len(each) > MAX_TEXT:
                raise Problem(Code.INVALID_VALUE, f"policy has a member {each[:80]!r}: user:… or the like is meant")


class IamPolicies:
    """`path` is the file; None: they live as long as the broker. Raises `ValueError` for a file that is none."""

    def __init__(self, path: Path | None) -> None:
        self._path: Final = path
        self._by_resource: Final[dict[str, Policy]] = {}
        self._changing: Final = asyncio.Lock()
        self._gone: Final[set[str]] = set()
        """Resources that were deleted, and whose policies are still here."""
        self._forgetting: asyncio.Task[None] | None = None
        if path is not None and path.exists():
            self._by_resource.update(msgspec.json.decode(path.read_bytes(), type=dict[str, Policy]))

    def get(self, resource: str) -> Policy:
        """Without bindings where none was set."""
        return self._by_resource.get(resource) or with_etag(Policy())

    async def put(self, resource: str, policy: Policy) -> Policy:
        """Keep a policy; with its new etag. Raises `Problem`."""
        policy.check()
        async with self._changing:
            if policy.etag and policy.etag != self.get(resource).etag:
                raise Problem(Code.CONFLICT, "policy.etag is of an earlier policy: read it again, and change that")
            if resource not in self._by_resource and len(self._by_resource) >= MAX_POLICIES:
                raise Problem(Code.QUOTA_EXCEEDED, f"there are {MAX_POLICIES} policies, which is the limit")
            kept = with_etag(msgspec.structs.replace(policy, version=1))
            await self._save({**self._by_resource, resource: kept})
            self._by_resource[resource] = kept
            return kept

    async def forget(self, *resources: str) -> None:
        """The resources are deleted, or made anew. Raises `Problem`."""
        async with self._changing:
            gone = self._by_resource.keys() & set(resources)
            if gone:
                await self._save({name: each for name, each in self._by_resource.items() if name not in gone})
                for each in gone:
                    del self._by_resource[each]

    def forget_soon(self, resource: str) -> None:
        """The same for callers that cannot wait."""
        if resource in self._by_resource:
            self._gone.add(resource)
            if self._forgetting is None:
                self._forgetting = asyncio.get_running_loop().create_task(self._forget_gone())

    def keep_only(self, resources: Collection[str], kinds: tuple[str, ...]) -> None:
        """Of these kinds of resources there are only these."""
        for each in self._by_resource:
            if each.split("/")[2] in kinds and each not in resources:
                self.forget_soon(each)

    def follow(self, queues: Queues) -> None:
        """Have a policy go with its queue or snapshot, however that is deleted."""
        present = {subscription_resource(each) for each in queues.names}
        present |= {snapshot_resource(each.name) for each in queues.snapshots.of()}
        self.keep_only(present, ("subscriptions", "snapshots"))

        def on_queue(name: str) -> None:
            if name not in queues:
                self.forget_soon(subscription_resource(name))

        queues.on_changed.append(on_queue)
        queues.snapshots.on_gone = lambda name: self.forget_soon(snapshot_resource(name))

    async def forgotten(self) -> None:
        """Wait until policies are gone whose resources are."""
        if self._forgetting is not None:
            await self._forgetting

    async def _forget_gone(self) -> None:
        try:
            while self._gone:
                gone = list(self._gone)
                self._gone.clear()
                await self.forget(*gone)
        except Problem as problem:
            _log.warning("policies of deleted resources stay: %s", problem.detail)
        finally:
            self._forgetting = None

    async def _save(self, policies: dict[str, Policy]) -> None:
        if self._path is None:
            return
        try:
            await asyncio.to_thread(atomic_file.save, self._path, msgspec.json.encode(policies))
        except OSError as error:
            raise Problem(Code.BUSY, f"{FILE_NAME} cannot be written: {error.strerror}") from None


def with_etag(policy: Policy) -> Policy:
    """A policy with the etag that is of its bindings alone."""
    digest = hashlib.sha256(msgspec.json.encode(policy.bindings)).digest()[:9]
    return msgspec.structs.replace(policy, etag=base64.b64encode(digest).decode())
