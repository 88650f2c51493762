"""An HTTP server on loopback that records requests and answers as a test configures it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Received:
    """A request; `headers` has lower-case names."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class HttpSink:
    """Requests received so far; answers wait while `gate` is cleared."""

    port: int = 0
    status: int = 200
    text: str = "ok"
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def of(self, path: str) -> list[Received]:
        return [each for each in self.received if each.path == path]


@contextmanager
def http_sink() -> Iterator[HttpSink]:
    sink = HttpSink()
    sink.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            names = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(length)
            sink.received.append(Received(self.command, self.path, names, body))
            sink.gate.wait()
            text = sink.text.encode()
            try:
                self.send_response(sink.status)
                for name, value in sink.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                # The test has killed the client.
                return

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sink.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=[0.05], daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        sink.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
