"""The first request of an operator: clients of the broker do not wait while its libraries are imported."""

import subprocess
import sys
from pathlib import Path
from typing import Final

PROGRAM: Final = """
import asyncio, sys, threading
from mqttlite.config import Config, ListenerOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.server import Broker

imported = []

class Watch:
    def find_spec(self, name, path, target=None):
        if threading.current_thread() is threading.main_thread():
            imported.append(name)

async def ask(opened, path):
    reader, writer = await opened
    writer.write(f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n".encode())
    assert (await reader.read()).startswith(b"HTTP/1.1 200 "), path
    writer.close()

async def main():
    config = Config(listeners=[ListenerOptions(port=0)], data_dir=sys.argv[1], metrics=MetricsOptions(port=0))
    async with Broker(config) as broker:
        sys.meta_path.insert(0, Watch())
        for path in ("/status", "/metrics"):
            await ask(asyncio.open_connection("127.0.0.1", broker.monitor.port), path)
        for path in ("/api/v1/status", "/api/v1/clients", "/api/v1/queues", "/api/v1/streams"):
            await ask(asyncio.open_unix_connection(sys.argv[1] + "/admin.sock"), path)
        sys.meta_path.pop(0)
    print(*imported)

asyncio.run(main())
"""


def test_the_loop_imports_nothing_for_the_first_requests(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("\n", "")
