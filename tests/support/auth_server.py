"""An HTTP server that is asked about logins: it keeps the questions, and answers as a test says."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Self

Answer = tuple[int, bytes] | bytes | None
"""A status and a body; or the bytes of a response as they are; or nothing, and the connection is closed."""


def response(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class AuthServer:
    """`answer` finds the answer to the document of a question."""

    def __init__(
        self, answer: Callable[[dict[str, Any]], Awaitable[Answer]], tls: ssl.SSLContext | None = None
    ) -> None:
        self._answer = answer
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()
        self.questions: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.connections = 0
        self.busy = self.most_busy = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://localhost:{self.port}/login?from=mqtt"

    def hang_up(self) -> None:
        """Close the connections that are open."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                self.heads.append(head)
                length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0])
                self.questions.append(json.loads(await reader.readexactly(length)))
                self.busy += 1
                self.most_busy = max(self.most_busy, self.busy)
                answer = await self._answer(self.questions[-1])
                self.busy -= 1
                if answer is None:
                    break
                writer.write(answer if isinstance(answer, bytes) else response(*answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
