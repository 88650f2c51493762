"""A client that connects to a Spark driver's ports without knowing its secret.

Frames of Spark's transport: 8 bytes of length, 1 byte of type, then type-specific data. Requests
have type 3 (id, length, body), answers type 4, failures type 5.

Source: Spark 4.3, common/network-common protocol/RpcRequest.java, MessageEncoder.java;
common/network-shuffle protocol/OpenBlocks.java; core rpc/netty/NettyRpcEnv.scala RequestMessage;
py4j 0.10 protocol.py.
"""

from __future__ import annotations

import socket
import struct

REQUEST, ANSWER = 3, 4
OPEN_BLOCKS = 0
JAVA_STRING = b"\xac\xed\x00\x05t\x00\x01a"
"""The output of java.io.ObjectOutputStream for "a"."""
GATEWAY_CALL = b"c\nz:java.lang.System\ncurrentTimeMillis\ne\n"
"""py4j's call of a static method."""
ANSWER_SECONDS = 20


def for_blocks() -> bytes:
    """Return a request to the block manager for a block of the running application."""
    texts = [b"local-0", b"driver"]
    body = bytes([OPEN_BLOCKS]) + b"".join(struct.pack(">i", len(one)) + one for one in texts)
    block = b"broadcast_0_piece0"
    return _request(body + struct.pack(">ii", 1, len(block)) + block)


def to_the_driver(port: int) -> bytes:
    """Return a message to an endpoint of the driver: a Java object, which it would deserialize."""
    name = b"endpoint-verifier"
    host = b"127.0.0.1"
    receiver = b"\x01" + struct.pack(">H", len(host)) + host + struct.pack(">i", port)
    body = b"\x00" + receiver + struct.pack(">H", len(name)) + name + JAVA_STRING
    return _request(body)


def ask(port: int, request: bytes) -> bytes:
    """Send a request to a port of this machine; return the first answer, if any.

    A port whose owner has stopped accepting, such as an ended stream's, answers nothing.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as peer:
            peer.sendall(request)
            return peer.recv(65_536)
    except (ConnectionError, TimeoutError):
        return b""


def is_answer(found: bytes) -> bool:
    """Whether a frame answers the request: not empty, and not a failure."""
    return len(found) > 8 and found[8] == ANSWER


def _request(body: bytes) -> bytes:
    rest = bytes([REQUEST]) + struct.pack(">qi", 1, len(body)) + body
    return struct.pack(">q", 8 + len(rest)) + rest
