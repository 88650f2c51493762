"""Where the log of a running broker ends; works with ours and the real one."""

from __future__ import annotations

from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

CAUGHT_UP_SECONDS = 120.0


def log_end(port: int, *, host: str = "127.0.0.1") -> int:
    """Return the offset after a broker's last record, or -1 while it starts."""
    with RawClient(port, host=host) as client:
        body = client.ask(raw_remoting.GET_BROKER_RUNTIME_INFO).body
    found = body.partition(b'"commitLogMaxOffset":"')[2].partition(b'"')[0]
    return int(found or -1)


def until_caught_up(master: int, slave: int) -> None:
    """Wait until the brokers at two ports have logs of the same length."""
    until(
        lambda: log_end(slave) == log_end(master) > 0,
        "the slave to catch up with its master",
        seconds=CAUGHT_UP_SECONDS,
    )
