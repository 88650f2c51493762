"""A process that has imported what Spark's Python workers need, which they are forked from.

For one query by a data source Spark starts four Pythons one after the other: to look the source
up, to create it, to plan and to read. Each imports PySpark, numpy and pyarrow, most of a second on
a small machine. A report's process forks a `Zygote` before it starts anything else. Spark is given
a launcher for its Python: what that starts hands arguments, environment and files to the zygote,
which forks the daemon that Spark asked for, and stays as long as it does.

Whatever goes wrong on the way, the launcher becomes the Python that Spark would have had.

Source: pyspark/daemon.py and PythonWorkerFactory of Spark 4.3 (standard input is the daemon's
life line, standard output tells its port).
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import runpy
import select
import shlex
import signal
import socket
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

DAEMON_MODULE = "pyspark.daemon"
ADDRESS = "zygote"
REQUEST_BYTES_MAX = 1 << 20
STANDARD_FILES = (0, 1, 2)
SECONDS_MAX = 60  # for the zygote to have imported everything
_THIS = Path(__file__).resolve()
_IMPORTED = (
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyarrow",
    "analytics.sources.commitlog",
    "analytics.store.reader",
)


class Zygote:
    """A process forked from this one; it ends when this one does.

    It must be made while this process has one thread.
    """

    def __init__(self, unneeded: IO[str] | None = None) -> None:
        """Fork. The child closes `unneeded`, whose reader waits for the end of our output."""
        self._link, link = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self._link.close()
            if unneeded is not None:
                os.close(unneeded.fileno())
            _live(link)
        link.close()

    def listen(self, directory: Path) -> None:
        """Let daemons be asked for in a directory that only this user may enter.

        Raises:
            OSError: no socket can be made there, or the zygote is gone.
        """
        with _socket() as listener, _address_in(directory) as address:
            listener.bind(address)
            listener.listen()
            socket.send_fds(self._link, [b"l"], [listener.fileno()])


def launcher(python: str, directory: Path) -> str:
    """Return a line of a shell script that takes to the zygote what is for it, else goes on."""
    # -I and -S: it needs nothing but the standard library, and little of that.
    command = shlex.join([python, "-IS", str(_THIS), str(directory)])
    return f'[ "$1 $2" = "-m {DAEMON_MODULE}" ] && exec {command} "$@"\n'


def _ask(directory: Path, arguments: list[str]) -> None:
    """Hand a daemon over to the zygote of a directory, and stay while it lives."""
    zygote = _socket()
    zygote.settimeout(SECONDS_MAX)
    request = {"arguments": arguments[2:], "environment": dict(os.environ)}
    try:
        with _address_in(directory) as address:
            zygote.connect(address)
        socket.send_fds(zygote, [json.dumps(request).encode()], STANDARD_FILES)
    except OSError:
        os.execv(sys.executable, [sys.executable, *arguments])
    zygote.settimeout(None)
    zygote.recv(1)


def _socket() -> socket.socket:
    # One request is one packet.
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@contextmanager
def _address_in(directory: Path) -> Iterator[str]:
    """Give the socket's address by a descriptor: a path may have 107 bytes only."""
    entry = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{entry}/{ADDRESS}"
    finally:
        os.close(entry)


def _live(link: socket.socket) -> NoReturn:
    """Be the zygote."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # for whoever forked us to answer
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        for name in _IMPORTED:
            importlib.import_module(name)
        _, files, _, _ = socket.recv_fds(link, 1, 1)
        if files:
            _serve(socket.socket(fileno=files[0]), link)
    finally:
        os._exit(0)


def _serve(listener: socket.socket, link: socket.socket) -> None:
    while True:
        ready, _, _ = select.select((listener, link), (), ())
        if link in ready:
            return
        connection, _ = listener.accept()
        request, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, len(STANDARD_FILES))
        if len(files) == len(STANDARD_FILES) and os.fork() == 0:
            listener.close()
            link.close()
            connection.detach()  # its end is the daemon's
            _become(json.loads(request), files)
        for number in files:
            os.close(number)
        connection.close()


def _become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the daemon that was asked for, as if `python -m` had started it."""
    code = 1
    try:
        for number, target in zip(files, STANDARD_FILES, strict=True):
            os.dup2(number, target)
            os.close(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = [DAEMON_MODULE, *request["arguments"]]
        runpy.run_module(DAEMON_MODULE, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except Exception:
        logger.exception("a Python daemon of Spark failed")
    finally:
        os._exit(code)


if __name__ == "__main__":
    _ask(Path(sys.argv[1]), sys.argv[2:])
