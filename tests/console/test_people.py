"""Users: invited by a link, given roles, disabled, removed; an administrator remains."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.accounts.actions import Action
from console.accounts.invitations import invite
from console.accounts.models import CustomRole, Invitation
from console.accounts.rights import rights_of
from console.accounts.roles import Role, give_role, role_of
from console.data.sql.models import SavedQuery
from console.people.audit.models import Entry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

PASSWORD = "nine lives of a purple cat"


def link_for(client: Client, name: str = "nina", role: str = "operator", **more: str) -> str:
    """Invite a user; return the path of the link on the page."""
    answer = client.post(reverse("people:invite"), {"name": name, "role": role, **more})
    found = re.search(r'id="invitation">[^<]*?(/accounts/join/[^<]+)<', answer.content.decode())
    assert found, answer.content.decode()
    return found[1]


def join(link: str, password: str = PASSWORD, client: Client | None = None):
    form = {"new_password1": password, "new_password2": password}
    return (client or Client()).post(link, form)


def account(name: str):
    return get_user_model().objects.get(username=name)


def test_an_invited_user_chooses_a_password_and_is_signed_in(actors) -> None:
    link, browser = link_for(actors.admin), Client()
    assert "sign in as" in browser.get(link).content.decode()

    answer = join(link, client=browser)

    assert answer["location"] == reverse("overview:index")
    assert browser.get(reverse("overview:index")).status_code == 200
    assert account("nina").check_password(PASSWORD)
    assert role_of(account("nina")) is Role.OPERATOR
    entry = Entry.objects.get(action="account.join")
    assert (entry.actor_name, entry.outcome) == ("nina", "done")


def test_an_invitation_link_creates_one_account_and_then_expires(actors) -> None:
    link = link_for(actors.admin)
    join(link)

    assert join(link, "another nine lives of cats").status_code == 404
    assert "used, revoked or has expired" in Client().get(link).content.decode()
    assert account("nina").check_password(PASSWORD)


def test_an_invitation_expires_after_three_days_and_frees_its_name(actors, monkeypatch) -> None:
    link = link_for(actors.admin)
    later = timezone.now() + timedelta(days=3, seconds=1)
    monkeypatch.setattr(timezone, "now", lambda: later)

    assert join(link).status_code == 404
    # The sessions of the actors have ended, too.
    assert invite("nina", Role.VIEWER, "", "ada")
    assert Invitation.objects.count() == 1


def test_a_revoked_invitation_opens_nothing(actors) -> None:
    link = link_for(actors.admin)
    kept = Invitation.objects.get()

    page = actors.admin.get(reverse("people:withdraw", args=[kept.pk])).content.decode()
    actors.admin.post(reverse("people:withdraw", args=[kept.pk]))

    assert "Revoke nina&#x27;s invitation?" in page
    assert join(link).status_code == 404
    assert not get_user_model().objects.filter(username="nina").exists()


def test_the_link_is_neither_stored_nor_audited_nor_shown_again(actors) -> None:
    token = link_for(actors.admin).rstrip("/").rpartition("/")[2]

    assert token not in str(Invitation.objects.values())
    assert token not in str(Entry.objects.values())
    assert token not in actors.admin.get(reverse("people:list")).content.decode()


def test_a_weak_password_is_rejected_and_leaves_the_link_open(actors) -> None:
    link = link_for(actors.admin)

    answer = join(link, "trebuchet1234")

    assert answer.status_code == 422
    assert "too similar to the name" in answer.content.decode()
    assert join(link).status_code == 302


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("RITA", "An account with this name already exists."),
        ("nina", "This name has already been invited."),
        ("a b", "Enter a valid username."),
    ],
)
def test_an_invalid_name_cannot_be_invited(name, sentence, actors) -> None:
    link_for(actors.admin)

    answer = actors.admin.post(reverse("people:invite"), {"name": name, "role": "viewer"})

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert Invitation.objects.count() == 1


def test_the_link_is_mailed_if_mail_is_configured_and_no_address_is_asked_otherwise(
    actors, settings
) -> None:
    settings.EMAIL_HOST = ""
    assert "mail" not in actors.admin.get(reverse("people:invite")).context["form"].fields
    settings.EMAIL_HOST = "mail.example.org"

    link = link_for(actors.admin, mail="nina@example.org")

    (sent,) = mail.outbox
    assert sent.to == ["nina@example.org"]
    assert link in sent.body


def test_a_rejected_mail_is_reported_and_the_link_is_still_shown(
    actors, settings, monkeypatch
) -> None:
    def refuse(_mail: object) -> int:
        raise ConnectionRefusedError

    settings.EMAIL_HOST = "mail.example.org"
    monkeypatch.setattr(mail.EmailMessage, "send", refuse)

    form = {"name": "nina", "role": "viewer", "mail": "nina@example.org"}
    html = actors.admin.post(reverse("people:invite"), form).content.decode()

    assert "accept the e-mail: ConnectionRefusedError" in html
    assert "/accounts/join/" in html


def test_the_list_shows_role_state_and_users_who_have_never_signed_in(
    actors, reader_account
) -> None:
    get_user_model().objects.create_user("zoe")
    reader_account.is_active = False
    reader_account.save()
    link_for(actors.admin)

    html = actors.admin.get(reverse("people:list")).content.decode()

    rows = dict(re.findall(r'<a href="/people/\d+/">(\w+)</a>(.*?)</tr>', html, re.DOTALL))
    assert list(rows) == ["ada", "olga", "rita", "zoe"]
    assert "Administrator" in rows["ada"]
    assert "Operator" in rows["olga"]
    assert "disabled" in rows["rita"]
    assert "signed in yet" in rows["zoe"]
    assert "nina" in html


def test_granting_and_revoking_a_role_are_both_audited(actors, reader_account) -> None:
    url = reverse("people:role", args=[reader_account.pk])
    create = reverse("topics:create")

    actors.admin.post(url, {"role": "operator"})
    assert actors.reader.get(create).status_code == 200
    actors.admin.post(url, {"role": "viewer"})
    assert actors.reader.get(create).status_code == 403

    newest = Entry.objects.filter(action="account.role").first()
    assert newest is not None
    assert newest.before == {"role": "operator", "enabled": True}
    assert newest.after == {"role": "viewer", "enabled": True}


def test_a_disabled_operator_is_an_operator_again_afterwards(actors, operator_account) -> None:
    url = reverse("people:switch", args=[operator_account.pk])

    actors.admin.post(url, {"enabled": "off"})
    assert actors.operator.get(reverse("topics:list")).status_code == 302
    page = actors.admin.get(reverse("people:detail", args=[operator_account.pk]))
    assert page.context["person"].role is Role.OPERATOR

    actors.admin.post(url, {"enabled": "on"})
    assert role_of(account("olga")) is Role.OPERATOR


@pytest.mark.parametrize(
    ("page", "data"),
    [("role", {"role": "viewer"}), ("switch", {"enabled": "off"}), ("remove", {"name": "ada"})],
)
def test_the_last_administrator_stays(page, data, actors, admin_account) -> None:
    url = reverse(f"people:{page}", args=[admin_account.pk])

    html = actors.admin.post(url, data, follow=True).content.decode()

    ada = account("ada")
    assert (ada.is_staff, ada.is_active) == (True, True)
    assert "last administrator" in html


def test_an_administrator_without_a_password_does_not_count(actors, admin_account) -> None:
    give_role(get_user_model().objects.create_user("bob"), Role.ADMINISTRATOR)

    actors.admin.post(reverse("people:switch", args=[admin_account.pk]), {"enabled": "off"})

    assert account("ada").is_active


def test_an_administrator_may_step_down_if_there_is_another(actors, admin_account) -> None:
    other = get_user_model().objects.create_user("bob", password=PASSWORD)
    give_role(other, Role.ADMINISTRATOR)

    actors.admin.post(reverse("people:role", args=[admin_account.pk]), {"role": "viewer"})

    assert role_of(account("ada")) is Role.VIEWER
    assert actors.admin.get(reverse("people:list")).status_code == 403


def test_a_deletion_shows_its_effect_asks_for_the_name_and_is_audited(
    actors, reader_account
) -> None:
    SavedQuery.objects.create(owner=reader_account, name="hot", sql="SELECT 1", is_shared=True)
    url = reverse("people:remove", args=[reader_account.pk])

    page = actors.admin.get(url).content.decode()
    actors.admin.post(url, {"name": "olga"})
    assert get_user_model().objects.filter(username="rita").exists()
    actors.admin.post(url, {"name": "rita"})

    assert re.search(r"Queries shared with others</dt>\s*<dd>1", page)
    assert not get_user_model().objects.filter(username="rita").exists()
    assert actors.reader.get(reverse("topics:list")).status_code == 302
    entry = Entry.objects.get(action="account.remove", outcome="done")
    assert (entry.subject, entry.before) == ("rita", {"role": "viewer", "enabled": True})


ROLE = {"name": "shop", "actions": ["offset.reset"], "topics": "", "groups": "billing\nshop-*"}


def test_a_role_is_changed_on_its_page_for_all_its_members(actors, limited_account) -> None:
    actors.admin.post(reverse("people:role-create"), ROLE)
    made = CustomRole.objects.get()
    person = reverse("people:role", args=[limited_account.pk])
    actors.admin.post(person, {"role": "limited", "custom_role": [made.pk]})
    assert made.groups == ["billing", "shop-*"]
    assert rights_of(account("leo")).may(Action.OFFSET, "shop-1")

    page = reverse("people:role-edit", args=[made.pk])
    actors.admin.post(page, {**ROLE, "groups": "billing"})
    assert not rights_of(account("leo")).may(Action.OFFSET, "shop-1")
    assert rights_of(account("leo")).may(Action.OFFSET, "billing")

    entry = Entry.objects.get(action="role.update")
    assert (entry.before["groups"], entry.after["groups"]) == (["billing", "shop-*"], ["billing"])
    given = Entry.objects.get(action="account.role")
    assert given.after == {"role": "limited", "enabled": True, "custom_roles": ["shop"]}


def test_a_deleted_role_grants_nothing_and_its_name_had_to_be_typed(
    actors, limited_account
) -> None:
    made = CustomRole.objects.create(name="shop", actions=["offset.reset"], groups=["*"])
    made.members.add(limited_account)
    page = reverse("people:role-delete", args=[made.pk])

    actors.admin.post(page, {"name": "other"})
    assert rights_of(account("leo")).may(Action.OFFSET, "billing")
    actors.admin.post(page, {"name": "shop"})

    assert not rights_of(account("leo")).may(Action.OFFSET, "billing")
    assert Entry.objects.get(action="role.delete").before["members"] == ["leo"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"groups": ""}, "Enter the groups"),
        ({"groups": "a b; c!"}, "a valid name"),
        ({"actions": []}, "This field is required"),
        ({"actions": ["message.read"], "groups": ""}, "Enter the topics"),
        ({"actions": ["fly"]}, "not one of the available choices"),
        ({"groups": " ".join(f"g{each}" for each in range(51))}, "51 names; the limit is 50"),
    ],
)
def test_an_invalid_role_is_rejected_in_the_form(wrong, sentence, actors) -> None:
    answer = actors.admin.post(reverse("people:role-create"), {**ROLE, **wrong})

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert not CustomRole.objects.exists()


def test_a_user_invited_with_a_custom_role_has_it(actors) -> None:
    made = CustomRole.objects.create(name="shop", actions=["offset.reset"], groups=["*"])

    join(link_for(actors.admin, role="limited", custom_roles=str(made.pk)))

    assert role_of(account("nina")) is Role.LIMITED
    assert rights_of(account("nina")).may(Action.OFFSET, "billing")
