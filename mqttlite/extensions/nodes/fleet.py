"""All nodes as one broker, for the HTTP application of each: it passes requests on, and joins answers.

Which nodes a request is about says the request (`?node=`), or else its route (`gateway.routing.Reach`). Invariant: a
node that was to be asked and did not answer is named in the answer, in `silent`; a change of what one node has goes to
one node, once.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.responses import Response

from mqttlite.extensions.nodes.calls import NoAnswer
from mqttlite.extensions.nodes.nodes import Nodes
from mqttlite.gateway.elsewhere import Answered, Inquiry, Question, Reach
from mqttlite.gateway.problems import Code, Problem

LOOK_S: Final = 1.0
"""How long a request that changes nothing waits for each node, unless it names the node."""

ACT_S: Final = 20.0
"""How long a change waits for each node, and each request that names the node."""

TELL_S: Final = 10.0
"""How long a change waits until all nodes know what is subscribed: what they hear of it comes behind messages."""

MAX_JOINED_BYTES: Final = 16_777_216
"""Of a list without pages: nodes whose answers have no room are named as silent."""

_JSON: Final = "application/json"


class Silent(msgspec.Struct, frozen=True):
    """A node that did not answer."""

    node: str
    reason: str
    """Goes on behind its name: `did not answer within 1 s`."""


class Fleet:
    """Implements `gateway.elsewhere.Elsewhere`. `now` is the time of the loop."""

    def __init__(self, nodes: Nodes, now: Callable[[], float]) -> None:
        self.me: Final = nodes.node
        self._nodes: Final = nodes
        self._now: Final = now

    async def answer(self, inquiry: Inquiry, node: str | None) -> Response:
        """As `Elsewhere`."""
        question = inquiry.question
        if node is None:
            if inquiry.reach is Reach.LIST:
                return await self._list(inquiry)
            if inquiry.reach is Reach.EACH:
                return await self._each(inquiry)
            return await self._thing(inquiry)
        if node == self.me:
            return await inquiry.here(question.query)
        return (await self._forwarded(inquiry, node, ACT_S)).response()

    async def ask(self, node: str, question: Question) -> Answered:
        """As `Elsewhere`."""
        return await self._asked(node, question, ACT_S)

    async def tell_all(self, names: Iterable[str]) -> str:
        """As `Elsewhere`."""
        lost = set(names) - {self.me, *self.connected}
        late = await self._nodes.telling.tell_all(TELL_S)
        said = [f"node {name} is not connected" for name in sorted(lost)]
        return "; ".join(said + [f"node {name} does not answer" for name in sorted(late)])

    # ------------------------------------------------------------------ one of them has it

    async def _thing(self, inquiry: Inquiry) -> Response:
        """A change goes to the only node that has the thing, once. All else goes to the first one that has it."""
        question = inquiry.question
        if question.method != "GET":
            return await self._change(inquiry)
        try:
            return _with(await inquiry.here(question.query), node=self.me)
        except Problem as problem:
            if problem.code is not Code.NOT_FOUND or await inquiry.has():  # what is missing is a part of it
                raise
            missing = problem
        having, silent = await self._look(inquiry)
        if not having:
            raise _nowhere(missing.detail, silent) if silent else missing
        node = min(having)
        is_found = question.path == inquiry.thing and not question.query
        answered = having[node] if is_found else await self._forwarded(inquiry, node, LOOK_S)
        inquiry.state["node"] = node
        return _with(answered.response(), node=node, **_told(silent))

    async def _change(self, inquiry: Inquiry) -> Response:
        is_here = await inquiry.has()
        having, silent = await self._look(inquiry)
        names = sorted([*having, self.me] if is_here else having)
        if len(names) > 1:
            raise Problem(
                Code.CONFLICT,
                f"nodes {', '.join(names)} have one of this name each: say which one is meant, with the parameter node",
                nodes=names,
            )
        if names and not is_here:
            answered = await self._forwarded(inquiry, names[0], ACT_S)
            return _with(answered.response(), node=names[0], **_told(silent))
        if silent and not is_here:
            raise _nowhere("nothing was changed, because what is meant was not found", silent)
        return _with(await inquiry.here(inquiry.question.query), node=self.me, **_told(silent))

    async def _look(self, inquiry: Inquiry) -> tuple[dict[str, Answered], dict[str, str]]:
        """The other nodes that have the thing, with what they answer for it, and the silent ones."""
        question = msgspec.structs.replace(
            inquiry.question, method="GET", path=inquiry.thing, query=b"", media_type="", body=b""
        )
        having: dict[str, Answered] = {}
        silent = self._away()

        async def look(name: str) -> None:
            try:
                answered = await self._ask(name, question, LOOK_S)
            except NoAnswer as silence:
                silent[name] = str(silence)
                return
            if answered.status == 200:
                having[name] = answered
            elif answered.status != 404:
                silent[name] = f"answered: {_detail(answered)}"

        await asyncio.gather(*(look(name) for name in self.connected))
        return having, silent

    async def _forwarded(self, inquiry: Inquiry, node: str, within_s: float) -> Answered:
        """The answer of the node that a request is about. Raises `Problem`."""
        answered = await self._asked(node, inquiry.question, within_s)
        inquiry.state["node"] = node
        return answered

    async def _asked(self, node: str, question: Question, within_s: float) -> Answered:
        """Raises `Problem`."""
        if not self._nodes.knows(node):
            raise Problem(Code.NOT_FOUND, f"there is no node {node[:100]!r}: GET /api/v1/nodes lists the others")
        try:
            return await self._ask(node, question, within_s)
        except NoAnswer as silence:
            is_open = silence.was_sent and question.method != "GET"
            perhaps = ": it may have carried this out all the same" if is_open else ""
            raise Problem(Code.NO_ANSWER, f"node {node} {silence}{perhaps}") from None

    # ------------------------------------------------------------------ all do it

    async def _each(self, inquiry: Inquiry) -> Response:
        question = inquiry.question
        own = await inquiry.here(question.query)
        silent = self._away()
        within_s = LOOK_S if question.method == "GET" else ACT_S

        async def ask(name: str) -> dict[str, Any] | None:
            try:
                answered = await self._ask(name, question, within_s)
            except NoAnswer as silence:
                is_open = silence.was_sent and question.method != "GET"
                silent[name] = f"{silence}, and may have carried this out" if is_open else str(silence)
                return None
            return {"node": name, "status": answered.status, "answer": _decoded(answered)}

        answers = await asyncio.gather(*(ask(name) for name in self.connected))
        others = [each for each in answers if each is not None]
        return _with(own, node=self.me, others=others, silent=_shown(silent))

    # ------------------------------------------------------------------ a list of all

    async def _list(self, inquiry: Inquiry) -> Response:
        """A page, which begins at the node that the cursor names, and goes on at the next one while it has room."""
        fields = dict(parse_qsl(inquiry.question.query.decode("latin-1"), keep_blank_values=True))
        limit = fields.get("limit", str(inquiry.default_limit))
        is_paged = inquiry.default_limit > 0
        if is_paged and not (limit.isdecimal() and int(limit[:9]) > 0):
            return await inquiry.here(inquiry.question.query)  # which says what is wrong with it
        given = fields.pop("cursor", "")
        name, colon, cursor = given.partition(":")
        if given and not colon:
            raise Problem(Code.INVALID_VALUE, "query.cursor: it is none of an answer of these nodes")
        left = int(limit[:9]) if is_paged else 0
        page = _Page()
        silent = self._away()
        for node in sorted([self.me, *self.connected]):
            if node < name:
                continue
            if is_paged and left <= 0:
                page.end_at(f"{node}:")
                break
            if is_paged:
                fields |= {"limit": str(left), "cursor": cursor if node == name else ""}
            try:
                answered = await self._part(inquiry, node, urlencode(fields).encode())
            except NoAnswer as silence:
                silent[node] = str(silence)
                continue
            if page.size_bytes + len(answered.body) > MAX_JOINED_BYTES:
                silent[node] = f"has no room in this answer: ask it alone (node={node})"
                continue
            found, further = page.add(node, answered)
            left -= found
            if further:
                page.end_at(f"{node}:{further}")
                break
        return page.response(_shown(silent))

    async def _part(self, inquiry: Inquiry, node: str, query: bytes) -> Answered:
        """The part of a list that a node has. Raises `NoAnswer`, and `Problem`."""
        if node == self.me:
            own = await inquiry.here(query)
            return Answered(own.status_code, _JSON, bytes(own.body))
        answered = await self._ask(node, msgspec.structs.replace(inquiry.question, query=query), LOOK_S)
        if answered.status in (400, 422):
            found = _decoded(answered)
            raise Problem(Code(found["code"]), f"{found['detail']} (at node {node})")
        if answered.status != 200:
            raise NoAnswer(f"answered: {_detail(answered)}")
        return answered

    # ------------------------------------------------------------------ other nodes

    async def _ask(self, name: str, question: Question, within_s: float) -> Answered:
        """Raises `NoAnswer`."""
        found = await self._nodes.calls.ask(name, msgspec.msgpack.encode(question), within_s)
        return msgspec.msgpack.decode(found, type=Answered)

    @property
    def connected(self) -> list[str]:
        """As `Elsewhere`."""
        return sorted(each.name for each in self._nodes.peers if each.is_connected)

    def _away(self) -> dict[str, str]:
        """Nodes that cannot be asked, and why: those that run, or for which something waits."""
        now = self._now()
        return {
            each.name: f"is away ({each.reason[:1].lower()}{each.reason[1:].removesuffix('.')})"
            for each in sorted(self._nodes.peers, key=lambda each: each.name)
            if not each.is_connected and (each.is_near(now) or not each.is_lost)
        }


class _Page:
    """A list that is put together. What it has beside its entries is that of the first answer, and numbers are sums."""

    def __init__(self) -> None:
        self._items: Final[list[dict[str, Any]]] = []
        self._more: Final[dict[str, Any]] = {}
        self._cursor: str | None = None
        self.size_bytes: int = 0

    def add(self, node: str, answered: Answered) -> tuple[int, str | None]:
        """Add the entries of a node; how many there are, and the cursor of further ones."""
        self.size_bytes += len(answered.body)
        found: dict[str, Any] = msgspec.json.decode(answered.body)
        items = found.pop("items")
        self._items.extend({**each, "node": node} for each in items)
        further: str | None = found.pop("cursor", None)
        for member, value in found.items():
            former = self._more.get(member)
            self._more[member] = former + value if isinstance(former, int) and isinstance(value, int) else value
        return len(items), further

    def end_at(self, cursor: str) -> None:
        """Another page follows."""
        self._cursor = cursor

    def response(self, silent: list[Silent]) -> Response:
        found = {"items": self._items, "cursor": self._cursor, **self._more, "silent": silent}
        return Response(msgspec.json.encode(found), media_type=_JSON)


def _nowhere(what: str, silent: dict[str, str]) -> Problem:
    """Nodes that did not answer may have what no other one has."""
    said = "; ".join(f"node {name} {reason}" for name, reason in sorted(silent.items()))
    return Problem(Code.NO_ANSWER, f"{what} (at no node that answered: {said})", **_told(silent))


def _told(silent: dict[str, str]) -> dict[str, Any]:
    """A member of an answer, if there is something to say."""
    return {"silent": [msgspec.to_builtins(each) for each in _shown(silent)]} if silent else {}


def _shown(silent: dict[str, str]) -> list[Silent]:
    return [Silent(node, reason) for node, reason in sorted(silent.items())]


def _with(response: Response, **members: Any) -> Response:
    """An answer with further members, if it is an object in JSON."""
    body = bytes(getattr(response, "body", b""))  # a file has none
    if not (response.media_type or "").startswith(_JSON) or not body.startswith(b"{"):
        return response
    found = {**msgspec.json.decode(body), **members}
    return Response(msgspec.json.encode(found), response.status_code, media_type=_JSON)


def _decoded(answered: Answered) -> Any:
    """An answer as data: a text if it is no JSON."""
    try:
        return msgspec.json.decode(answered.body)
    except msgspec.DecodeError:
        return answered.body.decode(errors="replace")


def _detail(answered: Answered) -> str:
    """A problem in a sentence."""
    found = _decoded(answered)
    return str(found["detail"]) if isinstance(found, dict) and "detail" in found else f"status {answered.status}"
