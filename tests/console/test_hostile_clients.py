"""The web server with hostile clients: bodies, stalled connections, cross-site sockets."""

from __future__ import annotations

import json
import select
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console.messages.tracing.consumers import CLOSE_SIGNED_OUT
from console.serving.body_limit import DROPPED_BYTES_MAX, SILENT_SECONDS_MAX
from tests.support.appliance import Visitor
from tests.support.waiting import until
from tests.support.web_process import WebProcess, read_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGN_IN = b"POST /accounts/sign-in/ HTTP/1.1\r\nHost: localhost\r\n"
MIB = 1 << 20


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    process = WebProcess(tmp_path_factory.mktemp("web"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def visitor(web: WebProcess) -> Visitor:
    """The administrator, signed in."""
    visitor = Visitor(web.url)
    # The overview needs a broker.
    visitor.sign_in(then="/accounts/password/")
    return visitor


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def form(path: str, length: int, cookies: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/x-www-form-urlencoded",
        f"Cookie: {cookies}",
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def bytes_written(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def test_a_quarter_gigabyte_for_the_sign_in_page_is_rejected_unread(web: WebProcess) -> None:
    written = bytes_written(web.pid)

    answer = web.ask(SIGN_IN + b"Content-Length: %d\r\n\r\n" % (250 * MIB))

    assert status_of(answer) == 413
    assert bytes_written(web.pid) - written < MIB


def test_a_body_of_unknown_length_ends_at_the_limit(web: WebProcess) -> None:
    written = bytes_written(web.pid)
    chunk = b"%x\r\n%s\r\n" % (64 * 1024, b"x" * 64 * 1024)
    sent = 0

    with web.connect() as peer:
        peer.sendall(SIGN_IN + b"Transfer-Encoding: chunked\r\n\r\n")
        while sent < 250 * MIB and not select.select([peer], [], [], 0)[0]:
            try:
                peer.sendall(chunk)
            except (BrokenPipeError, ConnectionResetError):
                break
            sent += len(chunk)
        answer = read_to_end(peer)

    assert status_of(answer) in {413, 0}
    assert sent < 16 * MIB
    assert bytes_written(web.pid) - written < MIB


def test_an_authenticated_client_may_send_more_than_a_stranger(
    web: WebProcess, visitor: Visitor
) -> None:
    body = b"x=" + b"y" * 100_000

    stranger = web.ask(form("/topics/new/", len(body), "trebuchet_session=made-up"))
    known = web.ask(form("/topics/new/", len(body), visitor.cookies) + body)
    sign_in = web.ask(form("/accounts/sign-in/", len(body), visitor.cookies))
    too_much = web.ask(form("/topics/new/", 3 * MIB, visitor.cookies))

    assert status_of(stranger) == 413
    assert (
        status_of(known) == 403
    )  # from Django, which has read the body: the form's token is missing
    assert status_of(sign_in) == 413
    assert status_of(too_much) == 413


def test_a_form_that_is_too_large_gets_a_page_that_says_so(
    web: WebProcess, visitor: Visitor
) -> None:
    """Closing the connection while the browser still sends would reset it."""
    body = b"body=" + b"y" * (4 * MIB)
    cookies = f"{visitor.cookies}; django_language=zh-hans"
    asked = form("/messages/send/", len(body), visitor.cookies) + body

    english = web.ask(asked)
    chinese = web.ask(form("/messages/send/", len(body), cookies) + body)
    stranger = web.ask(form("/accounts/sign-in/", len(body), "") + body)
    program = web.ask(form("/api/v1/messages", len(body), visitor.cookies) + body)

    for answer in (english, chinese, stranger, program):
        assert status_of(answer) == 413
    assert b"<h1>Request too large</h1>" in english
    assert "请求过大".encode() in chinese
    assert b"application/problem+json" in program
    assert json.loads(program.partition(b"\r\n\r\n")[2])["status"] == 413


def test_the_rest_of_a_large_body_is_read_for_some_megabytes_only(web: WebProcess) -> None:
    length, piece, sent = 250 * MIB, b"y" * MIB, 0

    with web.connect() as peer:
        peer.sendall(SIGN_IN + b"Content-Length: %d\r\n\r\n" % length)
        try:
            while sent < length:
                peer.sendall(piece)
                sent += len(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass

    # The kernel buffers some more on both sides.
    assert sent < DROPPED_BYTES_MAX + 32 * MIB


def test_a_client_that_waits_to_send_its_body_is_answered_at_once(web: WebProcess) -> None:
    asked = SIGN_IN + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % MIB
    began = time.monotonic()

    answer = web.ask(asked)

    assert status_of(answer) == 413
    assert time.monotonic() - began < SILENT_SECONDS_MAX


def peers_of(web: WebProcess) -> set[str]:
    """Return the addresses with connections to the server, by the kernel's table."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if int(local.rpartition(":")[2], 16) == web.port and state == "01":
            found.add(socket.inet_ntoa(int(remote[:8], 16).to_bytes(4, "little")))
    return found


def open_ones(peers: list[socket.socket]) -> list[socket.socket]:
    """Return the connections that the server hasn't closed."""
    still_open = []
    for peer in peers:
        peer.setblocking(False)
        try:
            if peer.recv(65_536):
                still_open.append(peer)
        except BlockingIOError:
            still_open.append(peer)
        except ConnectionResetError:
            continue
    return still_open


@pytest.mark.fault
def test_stalled_connections_are_closed(web: WebProcess) -> None:
    """Headers, bodies and unread answers; each sends a byte now and then."""
    slow_headers = [web.connect("127.0.1.1") for _ in range(100)]
    slow_bodies = [web.connect("127.0.2.1") for _ in range(50)]
    silent = [web.connect("127.0.3.1") for _ in range(20)]
    not_reading = web.connect("127.0.3.1")
    not_reading.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    not_reading.sendall(b"GET /static/console/app.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
    for peer in slow_headers:
        peer.sendall(b"GET /accounts/sign-in/ HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    for peer in slow_bodies:
        peer.sendall(SIGN_IN + b"Content-Length: 4000\r\n\r\nusername=")
    began = time.monotonic()

    def drip(peers: list[socket.socket]) -> list[socket.socket]:
        left = open_ones(peers)
        for peer in left:
            try:
                peer.send(b"x")
            except (BrokenPipeError, ConnectionResetError):
                continue
        time.sleep(0.5)
        return left

    until(lambda: not [*drip(slow_headers), *open_ones(silent)], "slow headers to be cut")
    assert time.monotonic() - began < 15
    until(lambda: not drip(slow_bodies), "slow bodies to be cut", seconds=40)
    until(lambda: "127.0.3.1" not in peers_of(web), "an unread answer to be cut", seconds=40)
    assert time.monotonic() - began < 40
    for peer in [not_reading, *slow_headers, *slow_bodies, *silent]:
        peer.close()


def test_one_address_cannot_take_every_connection(web: WebProcess) -> None:
    peers = [web.connect("127.0.4.1") for _ in range(200)]

    until(lambda: len(open_ones(peers)) <= 128, "connections above the limit to be rejected")
    assert len(open_ones(peers)) == 128
    neighbour = web.ask(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    for peer in peers:
        peer.close()

    assert status_of(neighbour) == 200
    until(
        lambda: (
            status_of(
                web.ask(
                    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                    "127.0.4.2",
                )
            )
            == 200
        ),
        "places to be released",
    )


def upgrade(web: WebProcess, path: str, cookie: str, *, host: str = "", origin: str = "") -> int:
    """Request a WebSocket as a browser does; return the status of the answer."""
    with web.connect() as peer:
        peer.sendall(upgrade_request(web, path, cookie, host, origin))
        return status_of(peer.recv(65_536))


def upgrade_request(web: WebProcess, path: str, cookie: str, host: str, origin: str) -> bytes:
    host = host or f"127.0.0.1:{web.port}"
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        *([f"Origin: {origin}"] if origin else []),
        f"Cookie: {cookie}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_socket_opens_for_a_page_of_this_console(web: WebProcess, visitor: Visitor) -> None:
    assert upgrade(web, "/live/stream/", visitor.cookies, origin=web.url) == 101


@pytest.mark.parametrize("path", ["/live/stream/", "/overview/flow/"])
def test_ending_all_other_sessions_ends_their_sockets(path: str, web: WebProcess) -> None:
    here, elsewhere = Visitor(web.url), Visitor(web.url)
    for each in (here, elsewhere):
        each.sign_in(then="/accounts/password/")

    with web.connect() as peer:
        peer.sendall(upgrade_request(web, path, elsewhere.cookies, "", web.url))
        assert status_of(peer.recv(65_536)) == 101
        here.post("/accounts/sessions/end/")
        received = b""
        while CLOSE_SIGNED_OUT.to_bytes(2, "big") not in received:
            received += (piece := peer.recv(65_536))
            assert piece, "the server ended the connection without a reason"
    assert here.read("/accounts/password/").count("Change password") > 0


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:8999",  # another program of the same host
        "http://127.0.0.1",
        "https://127.0.0.1:{port}",
        "http://localhost:{port}",
        "http://127.0.0.1:{port}.example.org",
        "http://example.org",
        "null",
        "",
    ],
)
def test_a_socket_does_not_open_for_another_page(
    web: WebProcess, visitor: Visitor, origin: str
) -> None:
    given = origin.format(port=web.port)

    assert upgrade(web, "/live/stream/", visitor.cookies, origin=given) == 403


def test_a_page_that_borrows_a_session_is_audited(web: WebProcess, visitor: Visitor) -> None:
    upgrade(web, "/live/stream/", visitor.cookies, origin="http://127.0.0.1:8998")
    upgrade(web, "/live/stream/", "", origin="http://127.0.0.1:8997")

    audit = visitor.read("/audit/?action=socket.refused")
    assert "A page at http://127.0.0.1:8998 tried to read with this session." in audit
    assert "8997" not in audit


def test_a_foreign_host_opens_no_socket(web: WebProcess, visitor: Visitor) -> None:
    """An attacker's name that resolves to this machine: origin and host agree."""
    status = upgrade(
        web, "/live/stream/", visitor.cookies, host="evil.example", origin="http://evil.example"
    )

    assert status == 403


def test_a_socket_without_an_application_is_not_found(web: WebProcess, visitor: Visitor) -> None:
    assert upgrade(web, "/nowhere/", visitor.cookies, origin=web.url) == 404
    assert upgrade(web, "/nowhere/", "", origin=web.url) == 404
    assert "Traceback" not in web.log.read_text()


CHUNKED = b"Transfer-Encoding: chunked\r\n"
HIDDEN_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /ws/live/ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
)


@pytest.mark.parametrize(
    "head",
    [
        SIGN_IN + b"Content-Length: 4\r\n" + CHUNKED,
        SIGN_IN + CHUNKED + b"Content-Length: 4\r\n",
        SIGN_IN + b"content-length: 0\r\ntransfer-encoding: Chunked\r\n",
        SIGN_IN.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNKED,
        SIGN_IN.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Connection: keep-alive\r\n" + CHUNKED,
        UPGRADE + b"Content-Length: 4\r\n" + CHUNKED,
        SIGN_IN + CHUNKED + CHUNKED,
        SIGN_IN + b"Content-Length: 4\r\nContent-Length: 5\r\n",
    ],
)
def test_a_request_with_two_lengths_is_rejected_and_its_connection_ends(
    head: bytes, web: WebProcess
) -> None:
    answer = web.ask(head + b"\r\n0\r\n\r\n" + HIDDEN_REQUEST)

    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()


def test_a_request_with_two_lengths_is_told_which_one_to_send(web: WebProcess) -> None:
    answer = web.ask(SIGN_IN + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n0\r\n\r\n")

    assert status_of(answer) == 400
    assert b"either Content-Length or" in answer
