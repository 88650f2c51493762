"""Words: each one is in a catalogue, and a catalogue changes the text of pages and scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client
from django.urls import reverse
from django.utils import translation

from console.gateway.errors import NameServerDownError
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.topics import RemoteTopics
from console.ui import words
from tests.console import catalogues
from tests.console.test_tracing_socket import socket_of
from tests.console.tracing_fakes import TracedBroker
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.django_db

# A sentence in a script that isn't an argument of the catalogue's functions.
BARE_SENTENCE = re.compile(r"""(?<!gettext\()(?<!, )["`'][A-Z][a-z]+(?: [a-z]+)+[^"`']*["`']""")
COMMENT = re.compile(r"/\*(?s:.*?)\*/|//.*")
ESPERANTO = {
    "Consumer groups": "Konsumaj grupoj",
    "The name server at %(where)s isn't responding: %(reason)s.": (
        "Nomservilo %(where)s: %(reason)s"
    ),
    "Names can contain only letters, digits and the characters % | - _": "Malbona nomo.",
    "The broker is up\0All %(count)d brokers are up": "Unu jes\0%(count)d jes jes",
    "You have live tracing open in too many windows. Close one, then reload.": "Tro da fenestroj.",
    "The console doesn't understand this message.": "Nekomprenebla.",
}
ESPERANTO_SCRIPTS = {
    "%s ago": "antaŭ %s",
    "Live, %s broker\0Live, %s brokers": "Rekta, %s\0Rekte, %s",
}


@pytest.fixture
def esperanto(settings, tmp_path: Path) -> Iterator[None]:
    """A second language, with a catalogue of a few words."""
    folder = tmp_path / "eo" / "LC_MESSAGES"
    catalogues.write_mo(folder / "django.mo", "eo", ESPERANTO)
    catalogues.write_mo(folder / "djangojs.mo", "eo", ESPERANTO_SCRIPTS)
    settings.LANGUAGES = [("en", "English"), ("eo", "Esperanto")]
    settings.LOCALE_PATHS = [tmp_path]
    words.script.cache_clear()
    yield
    words.script.cache_clear()


def test_the_catalogues_have_every_text_of_python_and_templates() -> None:
    held = catalogues.msgids(catalogues.CATALOGUES / "django.po")
    report = [*catalogues.words_of_python(), *catalogues.words_of_templates()]
    assert len(report) > 400

    missing = [pair for pair in report if pair[1] not in held]

    assert missing == [], "run manage.py makemessages"


def test_the_script_catalogue_has_every_text_of_the_scripts() -> None:
    held = catalogues.msgids(catalogues.CATALOGUES / "djangojs.po")
    text = list(catalogues.words_of_scripts())
    assert len(text) > 40

    assert [pair for pair in text if pair[1] not in held] == [], "run manage.py makemessages"


def test_the_catalogues_have_no_unused_text() -> None:
    held = catalogues.msgids(catalogues.CATALOGUES / "django.po")
    message = {text for _file, text in catalogues.words_of_python()}
    message |= {text for _file, text in catalogues.words_of_templates()}

    assert held - message == set(), "run manage.py makemessages"


def test_every_sentence_in_a_script_uses_the_catalogue() -> None:
    wrong = [
        f"{path.name}: {found.group()}"
        for path in catalogues.sources("*.js")
        for found in BARE_SENTENCE.finditer(COMMENT.sub("", path.read_text()))
    ]

    assert wrong == []


def test_a_catalogue_changes_a_template(actors, brokers, esperanto) -> None:
    url = reverse("groups:list")

    html = actors.reader.get(url, headers={"accept-language": "eo"}).content.decode()
    english = actors.reader.get(url).content.decode()

    assert "<h1>Konsumaj grupoj</h1>" in html
    assert '<html lang="eo"' in html
    assert "<h1>Consumer groups</h1>" in english
    assert '<html lang="en"' in english


def test_a_catalogue_changes_texts_from_python(actors, brokers, esperanto) -> None:
    data = {"topic": "a b", "broker_names": ["broker-a"]}

    answer = actors.admin.post(reverse("topics:create"), data, headers={"accept-language": "eo"})

    assert "Malbona nomo." in answer.content.decode()


def test_a_catalogue_has_its_own_plurals(actors, brokers, collector, esperanto) -> None:
    html = actors.reader.get("/", headers={"accept-language": "eo"}).content.decode()

    assert "Unu jes." in html


def test_a_catalogue_changes_texts_from_scripts(actors, brokers, esperanto) -> None:
    html = actors.reader.get("/", headers={"accept-language": "eo"}).content.decode()
    [address] = re.findall(r'<script src="(/words/[^"]+)"', html)

    answer = actors.stranger.get(address)

    assert address.startswith("/words/eo.js?v=")
    assert answer["content-type"] == "text/javascript; charset=utf-8"
    assert '"%s ago": "anta\\u016d %s"' in answer.content.decode()
    assert "immutable" in answer["cache-control"]
    assert actors.stranger.get("/words/xx.js").status_code == 404


def test_the_address_of_the_words_changes_with_them(esperanto) -> None:
    english, esperanto_address = words.address("en"), words.address("eo")

    assert english.partition("?v=")[2] != esperanto_address.partition("?v=")[2]


def test_a_brokers_fault_is_shown_in_the_language_of_the_page(esperanto) -> None:
    brokers = RemoteBrokers([f"127.0.0.1:{free_port()}"], 1.0)

    with translation.override("eo"), pytest.raises(NameServerDownError) as caught:
        RemoteTopics(brokers).all()
    brokers.close()

    assert caught.value.what.startswith("Nomservilo 127.0.0.1:")


@pytest.mark.django_db(transaction=True)
async def test_a_socket_uses_the_language_of_its_browser(esperanto) -> None:
    def sign_in() -> tuple[object, SessionStore]:
        user = get_user_model().objects.create_user("reader", password="correct horse battery")
        client = Client()
        client.force_login(user)
        return user, SessionStore(session_key=client.session.session_key)

    bridge = TracedBroker().bridge(batch_every_s=0)
    user, session = await database_sync_to_async(sign_in)()
    socket = socket_of(bridge, user, session, headers=[(b"accept-language", b"eo")])
    await socket.connect()

    await socket.send("{")
    problem = await socket.frame("problem")
    await socket.disconnect()

    assert problem["message"] == "Nekomprenebla."
