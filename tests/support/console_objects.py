"""One of each object that the console stores, for pages that show them; Django must be set up."""

from __future__ import annotations

from django.contrib.auth import get_user_model

from console.accounts.invitations import invite
from console.accounts.models import CustomRole
from console.accounts.roles import Role
from console.api.tokens import new_token
from console.broker.files.models import keep
from console.data.sql.models import SavedQuery
from console.gateway.files import ConfigFile
from console.lib.moment import now_ms
from console.messages.dead_letters.models import Item, Outcome, Run, State
from console.observe.alerts.links import silence_token
from console.observe.alerts.models import Alert, Channel, Rule, Silence, Window
from console.observe.marks.models import Mark, Token
from console.people.masking.models import MaskingRule


def make() -> dict[str, int | str]:
    """Create an alert with its rule, a channel, a window, a mark, a person…; return their keys."""
    # An alert that no evaluation resolves during the tests.
    rule = Rule.objects.create(name="urgent", source="verdict", clear_minutes=10_000)
    channel = Channel.objects.create(name="chat", kind="slack", url="https://example.com/x")
    window = Window.objects.create(
        name="night", kind="weekly", zone="UTC", begins="01:00", minutes=5
    )
    alert = Alert.objects.create(
        rule=rule,
        what="dead-letters",
        kind="group",
        broker="broker-a",
        name="billing",
        thread="x",
        state="firing",
        severity="bad",
        began_ms=1,
        fired_ms=1,
        open_key="x",
    )
    silence = Silence.objects.create(rule=rule, thread="y", about="y", began_ms=1, until_ms=2**50)
    token = Token.objects.create(name="chain", digest="x", by="ada", made_ms=now_ms())
    mark = Mark.objects.create(
        at_ms=now_ms(), text="shop 1.4.2", by=token.name, made_ms=now_ms(), token=token
    )
    person = get_user_model().objects.create_user("bob")
    invitation, link = invite("nina", Role.OPERATOR, "", "ada")
    mask = MaskingRule.objects.create(name="cards", topics=["cards-*"], what="[0-9]{16}")
    role = CustomRole.objects.create(
        name="shop",
        description="The shop's own topics",
        actions=["message.see", "message.read", "offset.reset"],
        topics=["orders", "shop-*"],
        groups=["order-service"],
    )
    role.members.add(person)
    owner = get_user_model().objects.filter(is_staff=True).earliest("pk")
    program, _text = new_token(owner, "chain", ["topics:read"], 30, now_ms())
    query = SavedQuery.objects.create(owner=owner, name="late orders", sql="SELECT 1")
    replay = Run.objects.create(
        group="order-service", action="replay", target="retry", rate=10, total=2, by="ada"
    )
    for offset, outcome in enumerate((Outcome.SENT, Outcome.FAILED)):
        Item.objects.create(
            run=replay,
            group=replay.group,
            broker_name="broker-a",
            queue_id=0,
            queue_offset=offset,
            commit_log_offset=-1,
            outcome=outcome,
            note="%RETRY%order-service broker-a:0 · 7",
        )
    replay.end(State.DONE)
    kept = {"order": False, "perm": 4, "readQueueNums": 2, "writeQueueNums": 2}
    version = keep("broker-a", ConfigFile.TOPICS, {"orders": kept})
    return {
        "run": replay.pk,
        "person": person.pk,
        "invitation": invitation.pk,
        "role": role.pk,
        "mask": mask.pk,
        "join": link.rstrip("/").rpartition("/")[2],
        "mark": mark.pk,
        "mark_token": token.pk,
        "api_token": program.pk,
        "rule": rule.pk,
        "channel": channel.pk,
        "window": window.pk,
        "alert": alert.pk,
        "silence": silence.pk,
        "token": silence_token(alert.pk),
        "schedule": query.pk,
        "version": version.pk,
    }
