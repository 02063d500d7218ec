"""A reverse proxy on this machine that serves a gateway below a path, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager


@asynccontextmanager
async def proxy_below(
    prefix: str, port: int, *, strips: bool = True, headers: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """The address of the proxy with the prefix. It answers one request for each connection; it takes the prefix off
    where it `strips`, and adds `headers`."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        method, target, rest = head.split(" ", 2)
        if target != prefix and not target.startswith(f"{prefix}/"):
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            return
        lines = [line for line in rest[:-4].split("\r\n") if not line.lower().startswith("connection: keep-alive")]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if not any(line.lower().startswith("upgrade:") for line in lines):
            lines.append("Connection: close")
        path = target[len(prefix) :] or "/" if strips else target
        to_gateway, from_proxy = await asyncio.open_connection("127.0.0.1", port)
        request = "\r\n".join([f"{method} {path} {lines[0]}", *lines[1:], "", ""])
        from_proxy.write(request.encode("latin-1"))
        ends = {asyncio.create_task(pipe(reader, from_proxy)), asyncio.create_task(pipe(to_gateway, writer))}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        from_proxy.close()
        await asyncio.wait(ends)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{prefix}"
    finally:
        server.close()
