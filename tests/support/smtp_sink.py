"""A mail server on loopback that records mails and answers as a test configures it."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage


@dataclass
class SmtpSink:
    """The mails received so far. `rcpt` is the answer to a recipient, `data` to a mail."""

    port: int = 0
    rcpt: str = "250 ok"
    data: str = "250 taken"
    mails: list[EmailMessage] = field(default_factory=list)


@contextmanager
def smtp_sink() -> Iterator[SmtpSink]:
    sink = SmtpSink()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            self.say("220 sink")
            while line := self.rfile.readline():
                word = line.strip().upper().partition(b" ")[0]
                match word:
                    case b"RCPT":
                        self.say(sink.rcpt)
                    case b"DATA":
                        self.say("354 go on")
                        self.say(self.take())
                    case b"QUIT":
                        self.say("221 bye")
                        return
                    case _other:
                        self.say("250 ok")

        def take(self) -> str:
            lines = []
            while (line := self.rfile.readline()) not in (b".\r\n", b""):
                lines.append(line.removeprefix(b"."))
            if sink.data.startswith("2"):
                mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
                sink.mails.append(mail)
            return sink.data

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sink.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=[0.05], daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
