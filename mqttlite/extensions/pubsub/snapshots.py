"""`/v1/projects/{project}/snapshots`, and seeking subscriptions to them and to times.

The snapshot `projects/p/snapshots/s` is the broker's snapshot `p.s`, of one queue. Invariant: an answer leaves when
what it says is committed, and after a seek nothing older is delivered.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.pubsub.bodies import answer, decoded
from mqttlite.extensions.pubsub.lists import PageSize, PageToken, page, start_of
from mqttlite.extensions.pubsub.names import (
    check_project,
    queue_name,
    snapshot_name,
    snapshot_resource,
    topic_name,
    topic_of_queue,
)
from mqttlite.extensions.pubsub.topics import BODY
from mqttlite.extensions.pubsub.visibility import sees_queue, sees_topic
from mqttlite.extensions.queues.commands import SEEK
from mqttlite.extensions.queues.errors import NoSuchQueue, SeekUnderWay
from mqttlite.extensions.queues.seek_requests import SeekTimedOut, parse_time, time_text_of
from mqttlite.extensions.queues.snapshots import NoSuchSnapshot, Snapshot, SnapshotExists, SnapshotRefused
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes


class SeekRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    time: str = ""
    snapshot: str = ""
    subscription: str = ""


class CreateSnapshotRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    subscription: str = ""
    name: str = ""
    labels: Any = None
    tags: Any = None


class SnapshotBody(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str = ""
    topic: str = ""
    expire_time: str = ""
    labels: Any = None


class UpdateSnapshotRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    snapshot: SnapshotBody = SnapshotBody()
    update_mask: str = ""


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/v1/projects/{project}", "Google Pub/Sub")
    queueing, iam = context.queueing, context.iam
    assert queueing is not None, "the API rests on queues"
    assert iam is not None, "the routes belong to it"
    queues, snapshots = queueing.queues, queueing.queues.snapshots

    def found(project: str, snapshot: str, reader: Caller | None = None) -> Snapshot:
        """Raises `Problem` where there is none, or its reader does not see it."""
        name = snapshot_name(project, snapshot)
        with suppress(NoSuchSnapshot):
            one = snapshots.get(name)
            if reader is None or sees_queue(context, reader, one.queue):
                return one
        raise Problem(Code.NOT_FOUND, f"there is no snapshot projects/{project}/snapshots/{snapshot}")

    def shown(snapshot: Snapshot) -> dict[str, Any]:
        return {
            "name": snapshot_resource(snapshot.name),
            "topic": topic_of_queue(queues.options(snapshot.queue)),
            "expireTime": time_text_of(snapshot.expires_at),
        }

    @route.put("/snapshots/{snapshot}", Role.ADMIN, "Make a snapshot", operation=BODY)
    async def create(project: str, snapshot: str, request: Request) -> Response:
        name = snapshot_name(project, snapshot)
        body = decoded(await request.body(), CreateSnapshotRequest)
        if body.labels or body.tags:
            raise Problem(Code.NOT_AVAILABLE, "labels and tags are not kept")
        queue = queue_name(project, _last(project, "subscriptions", body.subscription))
        try:
            made = snapshots.create(name, queue)
        except NoSuchQueue:
            raise Problem(Code.NOT_FOUND, f"there is no subscription {body.subscription[:200]}") from None
        except SnapshotExists:
            raise Problem(Code.CONFLICT, f"there is a snapshot {snapshot} already") from None
        except SnapshotRefused as error:
            raise Problem(Code.POLICY_REFUSES, str(error)) from None
        await context.loop_driver.settled()
        return answer(shown(made))

    @route.get("/snapshots", Role.VIEWER, "List the snapshots of a project")
    async def list_snapshots(
        caller: Caller, project: str, page_size: PageSize = 0, page_token: PageToken = ""
    ) -> Response:
        check_project(project)
        return page("snapshots", _of(caller, project, page_token, ""), page_size)

    def _of(caller: Caller, project: str, page_token: str, topic: str) -> Iterator[tuple[str, Any]]:
        """Those of a project, or of one of its topics by their names alone."""
        start = start_of(f"{project}.", page_token)
        for each in snapshots.of():
            if (
                each.name.startswith(f"{project}.")
                and start <= each.name != page_token
                and snapshot_resource(each.name)
                and sees_queue(context, caller, each.queue)
            ):
                if not topic:
                    yield each.name, shown(each)
                elif queues.options(each.queue).filters == (topic,):
                    yield each.name, snapshot_resource(each.name)

    @route.get("/topics/{topic}/snapshots", Role.VIEWER, "List the snapshots of a topic")
    async def list_of_topic(
        caller: Caller, project: str, topic: str, page_size: PageSize = 0, page_token: PageToken = ""
    ) -> Response:
        name = topic_name(project, topic)
        if context.topics.named(name) is None or not sees_topic(context, caller, name):
            raise Problem(Code.NOT_FOUND, f"there is no topic projects/{project}/topics/{topic}")
        return page("snapshots", _of(caller, project, page_token, name), page_size)

    @route.get("/snapshots/{snapshot}", Role.VIEWER, "Show a snapshot")
    async def show(caller: Caller, project: str, snapshot: str) -> Response:
        return answer(shown(found(project, snapshot, caller)))

    @route.patch("/snapshots/{snapshot}", Role.ADMIN, "Change a snapshot", operation=BODY)
    async def change(project: str, snapshot: str, request: Request) -> Response:
        body = decoded(await request.body(), UpdateSnapshotRequest)
        name = found(project, snapshot).name
        if body.update_mask not in ("expireTime", "expire_time"):
            raise Problem(Code.INVALID_VALUE, "updateMask is not expireTime: nothing else of a snapshot can be changed")
        try:
            changed = snapshots.expire_at(name, parse_time(body.snapshot.expire_time) / 1e6)
        except SnapshotRefused as error:
            raise Problem(Code.INVALID_VALUE, f"expireTime: {error}") from None
        except ValueError as error:
            raise Problem(Code.INVALID_VALUE, f"expireTime: {error}") from None
        await context.loop_driver.settled()
        return answer(shown(changed))

    @route.delete("/snapshots/{snapshot}", Role.ADMIN, "Delete a snapshot")
    async def delete(project: str, snapshot: str) -> Response:
        name = found(project, snapshot).name
        snapshots.delete(name)
        await iam.forget(snapshot_resource(name))
        await context.loop_driver.settled()
        return answer({})

    @route.post("/subscriptions/{subscription}:seek", Role.USER, "Go to a time or a snapshot", operation=BODY)
    @route.post("/subscriptions/{subscription}/seek", Role.USER)
    async def seek(caller: Caller, project: str, subscription: str, request: Request) -> Response:
        given = await request.body()
        name = queue_name(project, subscription)
        if not may_seek(context, caller, name):
            raise Problem(Code.NOT_AUTHORIZED, f"the caller is no admin, and may not publish to $queue/{name}/{SEEK}")
        body = decoded(given, SeekRequest)
        if bool(body.time) == bool(body.snapshot):
            raise Problem(Code.INVALID_VALUE, "either time or snapshot says where to seek to")
        try:
            queues.options(name)
            if body.snapshot:
                wanted = found(project, _last(project, "snapshots", body.snapshot)).name
                await queueing.seeks.to_snapshot(name, wanted)
            else:
                await queueing.seeks.to_time(name, parse_time(body.time))
        except NoSuchQueue:
            text = f"there is no subscription projects/{project}/subscriptions/{subscription}"
            raise Problem(Code.NOT_FOUND, text) from None
        except SnapshotRefused as error:
            raise Problem(Code.POLICY_REFUSES, str(error)) from None
        except (SeekUnderWay, SeekTimedOut) as error:
            raise Problem(Code.BUSY, str(error)) from None
        except ValueError as error:
            raise Problem(Code.INVALID_VALUE, f"time: {error}") from None
        return answer({})

    return route.made


def may_seek(context: GatewayContext, caller: Caller, name: str) -> bool:
    """Whether a caller may seek a queue: an admin, and who may publish the command of MQTT."""
    topic = f"$queue/{name}/{SEEK}".encode()
    return caller.may(Role.ADMIN) or context.core.permissions.may_publish(caller.source, topic)


def _last(project: str, kind: str, resource: str) -> str:
    """The last part of the name of a resource. Raises `Problem`."""
    parts = resource.split("/")
    if len(parts) != 4 or parts[:3] != ["projects", project, kind]:
        raise Problem(
            Code.INVALID_VALUE, f"{kind} of the project: {resource[:200]!r} is not projects/{project}/{kind}/<name>"
        )
    return parts[3]
