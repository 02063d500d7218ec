"""Serves the state of a running broker over HTTP, on a separate port.

`/metrics` for Prometheus, `/status`, `/clients` and `/client` for `mqttlite top`, `/healthz` and `/readyz` for
supervisors, `/why` for people. What it serves is made in `reports`. Invariant: an answer never waits for the network.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import msgspec

from mqttlite.admin import MAX_PAGE, Admin
from mqttlite.net.endpoints import TcpEndpoint
from mqttlite.net.http import JSON, HttpServer, Options, Request, Response, sentence
from mqttlite.net.local_host import is_local
from mqttlite.reports import Reports
from mqttlite.telemetry.following import MAX_FOLLOWED, TooManyFollowed
from mqttlite.telemetry.report import Report
from mqttlite.telemetry.status import status
from mqttlite.wire.errors import TopicFilterInvalid

_NO_LIBRARY: Final = "they need prometheus-client: pip install 'mqttlite[metrics]'"

_log = logging.getLogger("mqttlite.telemetry")


class StatePages:
    """The answers for `mqttlite top`, `health` and `why`."""

    def __init__(self, reports: Reports, admin: Admin) -> None:
        self._reports: Final = reports
        self._admin: Final = admin
        self.answers: Final[Mapping[str, Callable[[Request], Awaitable[Response]]]] = {
            "/status": self._status,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/why": self._why,
            "/clients": self._clients,
            "/client": self._client,
        }
        """By path."""

    async def _status(self, _request: Request) -> Response:
        return Response(200, status(await self._reports.latest()), JSON)

    async def _healthz(self, _request: Request) -> Response:
        return sentence(200, "The broker is alive.")

    async def _readyz(self, _request: Request) -> Response:
        reason = self._reports.not_ready()
        return sentence(503, f"Not ready: {reason}.") if reason else sentence(200, "The broker is ready.")

    async def _clients(self, request: Request) -> Response:
        """Clients with a session, in the order of their identifiers, a page at a time."""
        limit = request.query.get("limit", "100")
        if not limit.isdecimal():
            return sentence(400, f"limit is {limit!r}: it is a number, {MAX_PAGE} at most.")
        query = request.query
        page = await self._admin.clients(query.get("cursor", ""), int(limit), query.get("contains", ""))
        return Response(200, msgspec.json.encode(page), JSON)

    async def _client(self, request: Request) -> Response:
        """All that is known of one client."""
        client_id = request.query.get("id", "")
        details = self._admin.client(client_id)
        if details is None:
            return sentence(404, f"There is no client {client_id!r}.")
        return Response(200, msgspec.json.encode(details), JSON)

    async def _why(self, request: Request) -> Response:
        target, client = request.query.get("target", ""), request.query.get("client") or None
        if "follow" in request.query:
            return self._follow(request.query["follow"], request.query.get("after", ""))
        answers = self._reports.answers()
        if answers is None:
            return sentence(
                404,
                "No delivery log is kept. Trace a topic from now on with 'mqttlite why --follow FILTER', or put a "
                'section [delivery_log] into the configuration, such as topics = ["plant/#"], and start again.',
            )
        if not target and client is None:
            return sentence(400, "Of what? Name a message's id or a topic: /why?target=plant/7/temp&client=c7.")
        return Response(200, msgspec.json.encode(answers.why(target, client)), JSON)

    def _follow(self, topic_filter: str, after: str) -> Response:
        """Trace a filter for a while, and return the outcomes of its messages."""
        if after and not after.isdecimal():
            return sentence(400, f"after is {after!r}: it is a number that an answer had as latest.")
        try:
            self._reports.following.follow(topic_filter.encode())
        except TopicFilterInvalid as error:
            return sentence(400, f"{topic_filter!r} is no topic filter: {error}.")
        except TooManyFollowed:
            return sentence(503, f"{MAX_FOLLOWED} filters are followed already: end one of them first.")
        answers = self._reports.answers()
        assert answers is not None, "something is followed"
        return Response(200, msgspec.json.encode(answers.follow(topic_filter, int(after) if after else None)), JSON)


class Monitor:
    """`options` say where to listen."""

    def __init__(self, options: Options, reports: Reports, pages: StatePages) -> None:
        self.reports: Final = reports
        self._exposition: Final = _exposition()
        self._metrics_text: tuple[Report, bytes] | None = None
        """The latest report as metrics."""
        host = options.host
        self._is_open: Final = not (host.startswith("127.") or host in ("localhost", "::1"))
        """Whether others than this machine may reach it."""
        endpoint = TcpEndpoint(options.host, options.port)
        self._http: Final = HttpServer(endpoint, self._answer, None if self._is_open else is_local)
        self._answers: Final[Mapping[str, Callable[[Request], Awaitable[Response]]]] = {
            "/metrics": self._metrics,
            **pages.answers,
        }

    @property
    def port(self) -> int:
        """The real port, once it listens."""
        return self._http.port

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return self._http.addresses

    async def start(self) -> None:
        """Listen. Raises `CannotListen`."""
        if self._exposition is None:
            _log.warning("there will be no /metrics: %s", _NO_LIBRARY)
        await self._http.start("metrics")
        if self._is_open:
            _log.warning(
                "metrics, health and status on %s are open to the network: they show which clients are connected",
                ", ".join(self.addresses),
            )

    async def stop(self) -> None:
        await self._http.stop()

    # ------------------------------------------------------------------ answers

    async def _answer(self, request: Request) -> Response:
        answer = self._answers.get(request.path)
        if answer is None:
            return sentence(404, f"There is nothing here; there are {', '.join(self._answers)}.")
        return await answer(request)

    async def _metrics(self, _request: Request) -> Response:
        if self._exposition is None:
            return sentence(501, f"There are no metrics: {_NO_LIBRARY}.")
        content_type, exposition = self._exposition
        report = await self.reports.latest()
        text = self._metrics_text
        if text is None or text[0] is not report:
            pieces: list[bytes] = []
            for piece in exposition(report):
                pieces.append(piece)
                await asyncio.sleep(0)
            text = self._metrics_text = report, b"".join(pieces)
        return Response(200, text[1], content_type)


def _exposition() -> tuple[str, Callable[[Report], Iterator[bytes]]] | None:
    """The formatter of `/metrics` and its content type; None where the library is not installed.

    Imported at the start: the import takes a tenth of a second, and would hold up the loop later.
    """
    try:
        from mqttlite.telemetry.metrics import CONTENT_TYPE, exposition
    except ImportError:
        return None
    return CONTENT_TYPE, exposition
