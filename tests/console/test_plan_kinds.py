"""Plans travel through the browser: each is only valid on pages of its own kind."""

from __future__ import annotations

import pytest
from django.core import signing
from django.urls import reverse

from console.broker.configs.plan import sealed_state, unsealed_state
from console.people.audit.models import Entry
from tests.console.prerequisites import accounts_world
from tests.console.sample_configuration import files_world
from tests.console.test_addresses import ALL, url_of
from tests.console.test_audit_coverage import data_of, dead_letters_world

pytestmark = pytest.mark.django_db

# A page for each kind of plan, which a token carries.
KINDS_OF_PLANS = (
    "broker_accounts:edit",
    "broker_accounts:white",
    "brokers:key",
    "brokers:kv-put",
    "dead_letters:start",
    "files:edit",
    "groups:edit",
    "offsets:apply",
    "topics:edit",
)


def test_a_plan_is_only_accepted_by_the_page_of_its_kind(actors, brokers, monkeypatch) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.put("Orders", 0, 1_000)
    brokers.offsets["billing", "Orders", 0] = 1
    world = {**dead_letters_world(brokers, monkeypatch), **accounts_world(brokers)}
    world["brokers:key"] = reverse("brokers:key", args=["broker-a", 0, "transactionCheckMax"])
    world |= files_world()
    urls = {name: world.get(name) or url_of(name, dict(ALL)[name]) for name in KINDS_OF_PLANS}
    plans = {name: data_of(name, url, actors.admin) for name, url in urls.items()}

    for name, url in urls.items():
        for of, data in plans.items():
            answer = actors.admin.post(url, data) if of != name else None
            assert answer is None or answer.status_code < 500, (of, name)

    assert not Entry.objects.exists()


def test_a_form_remembers_its_base_version_only_by_its_own_kind() -> None:
    token = sealed_state({"broker-a": None}, "topic")

    assert unsealed_state(token, "topic") == {"broker-a": None}
    with pytest.raises(signing.BadSignature):
        unsealed_state(token, "group")
