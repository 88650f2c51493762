"""Checks TCP ports of this machine before our processes listen."""

from __future__ import annotations

import errno
import http.client
import socket

from deploy.terminal.translation import translated

CONNECT_TIMEOUT_S = 1.0
HEALTH_TIMEOUT_S = 3.0


def port_problem(host: str, port: int) -> str | None:
    """Return why a port isn't available, as the end of "port N of HOST …", or None."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the servers do, so that a recently closed connection doesn't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except socket.gaierror:
        return translated("can't be used: the address doesn't exist")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return translated("is in use by another process")
        if error.errno == errno.EADDRNOTAVAIL:
            return translated("can't be used: this machine doesn't have the address")
        if error.errno == errno.EACCES:
            return translated("can't be used: this user isn't allowed to listen there")
        return translated("can't be used: {why}", why=error.strerror)
    return None


def reachable_host(host: str) -> str:
    """Return the address at which this machine reaches a listener on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((reachable_host(host), port), CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def is_healthy(host: str, port: int) -> bool:
    """Return whether /healthz responds with 200."""
    connection = http.client.HTTPConnection(reachable_host(host), port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
