"""Languages: a user's, else the browser's; a channel's for its messages; all forms intact."""

from __future__ import annotations

import gettext
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.urls import reverse
from django.utils import translation

from console import catalogues
from console.observe.alerts.models import Channel, Message
from console.observe.alerts.result_delivery import queue_result
from console.people.preferences.models import Preferences

if TYPE_CHECKING:
    from pathlib import Path

OWN = reverse("preferences:own")
LANGUAGE = reverse("preferences:language")
SIGN_IN = reverse("accounts:sign-in")
CHOSEN = {"zone": "", "density": "normal", "theme": "auto", "language": "zh-hans"}
CHINESE = '<html lang="zh-hans"'
PO = """# Words.
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

#: a.py
msgid "one"
msgstr "eins"

#: a.py
msgid ""
"a \\"b\\"\\n"
"c"
msgstr "x"

msgctxt "month"
msgid "May"
msgstr "Mai"

#, python-format
msgid "%(n)d day"
msgid_plural "%(n)d days"
msgstr[0] "%(n)d Tag"
msgstr[1] "%(n)d Tage"

#, fuzzy
msgid "guess"
msgstr "Schuss"

msgid "later"
msgstr ""
"""


def catalogue(tmp_path: Path, text: str) -> gettext.GNUTranslations:
    folder = tmp_path / "po" / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "django.po").write_text(text)
    built = catalogues.compiled(tmp_path / "po", tmp_path / "built")
    with (built / "de" / "LC_MESSAGES" / "django.mo").open("rb") as file:
        return gettext.GNUTranslations(file)


def test_a_compiled_catalogue_matches_its_source(tmp_path) -> None:
    words = catalogue(tmp_path, PO)

    assert words.gettext("one") == "eins"
    assert words.gettext('a "b"\nc') == "x"
    assert words.pgettext("month", "May") == "Mai"
    assert words.ngettext("%(n)d day", "%(n)d days", 2) == "%(n)d Tage"


def test_guessed_or_missing_translations_stay_english(tmp_path) -> None:
    words = catalogue(tmp_path, PO)

    assert [words.gettext(each) for each in ("guess", "later")] == ["guess", "later"]


def test_a_changed_source_is_recompiled(tmp_path) -> None:
    catalogue(tmp_path, PO)

    assert catalogue(tmp_path, PO.replace("eins", "uno")).gettext("one") == "uno"


@pytest.mark.django_db
def test_a_language_belongs_to_the_user_and_not_to_the_browser(actors, brokers) -> None:
    actors.reader.post(OWN, CHOSEN)
    actors.reader.cookies.pop(settings.LANGUAGE_COOKIE_NAME)

    own = actors.reader.get(OWN, headers={"accept-language": "en"})
    other = actors.admin.get(OWN)

    assert CHINESE in own.content.decode()
    assert own["content-language"] == "zh-hans"
    # Sockets only have the browser's cookie.
    assert own.cookies[settings.LANGUAGE_COOKIE_NAME].value == "zh-hans"
    assert '<html lang="en"' in other.content.decode()


@pytest.mark.django_db
def test_the_default_language_is_the_browsers(actors, brokers) -> None:
    actors.reader.post(OWN, CHOSEN)
    actors.reader.post(OWN, CHOSEN | {"language": ""})

    chinese = actors.reader.get(OWN, headers={"accept-language": "zh-CN,zh;q=0.9"})
    english = actors.reader.get(OWN, headers={"accept-language": "de"})

    assert CHINESE in chinese.content.decode()
    assert '<html lang="en"' in english.content.decode()


@pytest.mark.django_db
def test_a_stranger_chooses_a_language_and_is_returned_to_the_page(actors) -> None:
    page = f"{SIGN_IN}?next=/topics/"

    html = actors.stranger.get(page).content.decode()
    answer = actors.stranger.post(LANGUAGE, {"language": "zh-hans", "next": page})

    chinese = actors.stranger.get(page).content.decode()
    assert answer["location"] == page
    assert CHINESE in chinese
    # Each language is listed under its own name, in every language.
    for _code, name in settings.LANGUAGES:
        assert f"{name}</button>" in html
        assert f"{name}</button>" in chinese


@pytest.mark.django_db
@pytest.mark.parametrize("next_page", ["https://example.com/", "//example.com", "/nowhere", ""])
def test_choosing_a_language_redirects_to_no_other_site(next_page, actors) -> None:
    answer = actors.stranger.post(LANGUAGE, {"language": "zh-hans", "next": next_page})

    assert answer["location"] == SIGN_IN


@pytest.mark.django_db
def test_a_language_that_does_not_exist_is_rejected(actors, brokers) -> None:
    assert actors.reader.post(LANGUAGE, {"language": "xx"}).status_code == 400
    assert "field__error" in actors.reader.post(OWN, CHOSEN | {"language": "xx"}).content.decode()
    assert not Preferences.objects.exists()


@pytest.mark.django_db
def test_a_removed_language_is_dropped(actors, brokers) -> None:
    actors.reader.post(OWN, CHOSEN)
    Preferences.objects.update(language="xx")
    Channel.objects.create(name="room", kind="slack", language="xx")

    assert actors.reader.get(OWN, headers={"accept-language": "en"}).status_code == 200
    assert Channel.objects.get().speaks == settings.LANGUAGE_CODE


@pytest.mark.django_db
def test_each_channel_gets_its_own_language_whoever_asks(settings) -> None:
    room = Channel.objects.create(name="room", kind="slack", language="zh-hans")
    own = Channel.objects.create(name="own", kind="slack")
    messages: list[str] = []

    def content() -> dict[str, object]:
        messages.append(translation.get_language() or "")
        return {"status": "test", "channel": messages[-1]}

    with translation.override("zh-hans"):
        assert queue_result([room.pk, own.pk], content) == 2

    report = {each.channel.name: each.content["channel"] for each in Message.objects.all()}
    assert report == {"room": "zh-hans", "own": "en"}
