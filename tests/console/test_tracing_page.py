"""The Live page: its address holds the filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors


@pytest.mark.parametrize("name", ["topic", "group", "tag", "key", "client", "property"])
def test_a_word_of_the_address_is_in_the_filter(
    actors: Actors, brokers: FakeBroker, name: str
) -> None:
    page = actors.reader.get(reverse("tracing:river"), {name: "shipping<b>"}).content.decode()

    field = page[page.index(f'name="{name}"') :].partition(">")[0]
    assert 'value="shipping&lt;b&gt;"' in field


def test_a_rarer_word_of_the_address_is_in_sight(actors: Actors, brokers: FakeBroker) -> None:
    plain = actors.reader.get(reverse("tracing:river")).content.decode()
    asked = {"sample": "100", "stage": "errors"}
    narrow = actors.reader.get(reverse("tracing:river"), asked).content.decode()

    assert '<details class="river__more">' in plain
    assert '<details class="river__more" open>' in narrow
    assert '<option value="100" selected>' in narrow
    assert '<option value="errors" selected>' in narrow
