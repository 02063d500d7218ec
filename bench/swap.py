"""Every certificate is replaced while clients exchange messages over TLS: who loses a connection, who sees the new one.

The server's certificate and key, the authority and its list of revoked certificates are other ones each time. The exit
code is 1 if a connection or a message was lost, or if a new connection was shown an old certificate.
"""

import json
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from bench import brokers, build, entrants, native
from mqttlite.security import certificates

FILES: Final = ("ca.crt", "crl.pem", "server.key", "server.crt")
SEEN_WITHIN_S: Final = 10.0


def run(*, clients: int, swaps: int, rate: float, compiled: bool) -> int:
    """Measure once and print it."""
    loadgen = str(build.loadgen())
    source = native.tree() if compiled else native.ROOT
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        certs = home / "certs"
        spec = entrants.serving(
            "mqttlite",
            home,
            {"PYTHONPATH": str(source)},
            ("--cafile", str(certs / "ca.crt"), "--crl", str(certs / "crl.pem")),
        )
        broker = brokers.Broker(spec, home)
        broker.ready()
        try:
            load = ("--mode", "fanin", "--tls", "--pubs", str(clients - 1), "--qos", "1", "--size", "64")
            where = ("--host", spec.host, "--port", str(spec.tls_port), "--rate", f"{rate:g}", "--secs", "600")
            working = subprocess.Popen([loadgen, *load, *where], stdout=subprocess.PIPE, text=True)
            try:
                time.sleep(2 + clients / 500)  # all are connected
                assert spec.tls_port is not None
                seen = [_swap(certs, home / f"set-{number}", spec.tls_port) for number in range(swaps)]
                time.sleep(1)
                working.send_signal(signal.SIGUSR2)
                told, _ = working.communicate(timeout=30)
            finally:
                working.kill()
                working.wait()
        finally:
            broker.stop()
    figures = json.loads(told)
    if "error" in figures:
        raise brokers.BrokerError(f"the load generator: {figures['error']}")
    lost = f"{figures['disconnects']} connections and {figures['lost']} messages lost"
    latency = f"p99 {figures['p99_us'] / 1e3:.2f} ms, max {figures['max_us'] / 1e3:.2f} ms"
    print(f"{swaps} swaps under {clients} connections, {figures['received']} messages: {lost}; {latency}")
    print(f"new connections saw the new certificate after {', '.join(f'{each:.2f}' for each in seen)} s")
    return 1 if figures["disconnects"] or figures["lost"] or max(seen) >= SEEN_WITHIN_S else 0


def _swap(certs: Path, newer: Path, port: int) -> float:
    """Replace all files by those of another authority; after how many seconds a new connection sees it."""
    certificates.init(newer)
    for name in FILES:
        shutil.copy(newer / name, certs / f".{name}")
        (certs / f".{name}").replace(certs / name)
    began = time.monotonic()
    while time.monotonic() - began < SEEN_WITHIN_S:
        if _trusts(newer / "ca.crt", port):
            return time.monotonic() - began
        time.sleep(0.05)
    return SEEN_WITHIN_S


def _trusts(authority: Path, port: int) -> bool:
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost"),
        ):
            return True
    except OSError:
        return False
