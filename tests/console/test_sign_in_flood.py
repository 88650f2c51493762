"""Many clients at the sign-in page of a running web server: memory, turns, limits."""

from __future__ import annotations

import http.client
import re
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.web_process import WebProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "/accounts/sign-in/"
MEMORY_BYTES_MAX = 100_000_000


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    process = WebProcess(tmp_path_factory.mktemp("web"))
    process.start()
    yield process
    process.stop()


class Guesser:
    """One form with its token, sent repeatedly."""

    def __init__(self, web: WebProcess) -> None:
        self._port = web.port
        page, cookie = self._ask("GET", "127.0.0.1", "", {})
        self._cookie = cookie.partition(";")[0]
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert found is not None
        self._token = found[1]

    def guess(self, username: str, source: str) -> str:
        """Try a password; return the page's message."""
        form = {"csrfmiddlewaretoken": self._token, "username": username, "password": "no"}
        headers = {"Cookie": self._cookie, "Content-Type": "application/x-www-form-urlencoded"}
        page, _cookie = self._ask("POST", source, urllib.parse.urlencode(form), headers)
        found = re.search(r'role="alert">.*?<strong>(.*?)</strong>', page)
        assert found is not None, page
        return found[1]

    def _ask(self, method: str, source: str, body: str, headers: dict[str, str]) -> tuple[str, str]:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._port, timeout=60, source_address=(source, 0)
        )
        with closing(connection):
            connection.request(method, PATH, body, headers)
            answer = connection.getresponse()
            return answer.read().decode(), answer.headers.get("Set-Cookie", "")


def memory_peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def reset_memory_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def test_simultaneous_guesses_from_one_address_are_checked_up_to_the_limit(web: WebProcess) -> None:
    guesser = Guesser(web)

    with ThreadPoolExecutor(24) as pool:
        text = list(pool.map(lambda _: guesser.guess("admin", "127.0.9.1"), range(24)))

    assert text.count("Wrong name or password.") <= 5
    assert sum("Too many failed attempts" in sentence for sentence in text) >= 19


def test_simultaneous_guesses_from_everywhere_use_little_memory_and_leave_a_way_in(
    web: WebProcess,
) -> None:
    guesser = Guesser(web)
    guesser.guess("nobody", "127.1.0.1")  # modules loaded by the first one stay
    reset_memory_peak(web.pid)
    before = memory_peak(web.pid)
    began = time.monotonic()

    with ThreadPoolExecutor(48) as pool:
        text = list(
            pool.map(lambda number: guesser.guess(f"n{number}", f"127.1.{number}.1"), range(48))
        )
    seconds = time.monotonic() - began

    assert memory_peak(web.pid) - before < MEMORY_BYTES_MAX
    assert {"Wrong name or password.", *text} == set(text)
    assert any("Too many people are signing in" in sentence for sentence in text)
    assert seconds < 60
    assert guesser.guess("nobody", "127.2.0.1") == "Wrong name or password."
