"""The evidence of a verdict: one sentence made of its numbers, for each rule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from console.ui.templatetags.ui import bytes_text, duration, grouped, rate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    # Numbers, and the names that show what they are of.
    Evidence = Mapping[str, Any]


def number(value: float) -> str:
    return grouped(round(value))


def span(milliseconds: float) -> str:
    return str(duration(milliseconds / 1000))


def came_back(seen: Evidence) -> str:
    """Return which message came back most often, in a sentence; nothing where none is known."""
    times = int(seen.get("times", "0"))
    if not times or not seen.get("message"):
        return ""
    return " " + ngettext(
        "Message %(message)s came back %(times)d time.",
        "Message %(message)s came back %(times)d times.",
        times,
    ) % {"message": seen["message"], "times": times}


def poison(seen: Evidence) -> str:
    """Return the message at which a queue stands, in a sentence."""
    if "offset" not in seen:
        return ""
    said = {
        "message": seen.get("message") or _("without an id"),
        "offset": seen["offset"],
        "size": bytes_text(int(seen["bytes"])),
        "host": seen["host"],
    }
    first = _("It is message %(message)s at offset %(offset)s: %(size)s, from %(host)s.") % said
    return f" {first}{came_back(seen)}"


def queue_stuck(seen: Evidence) -> str:
    said = ngettext(
        "Queue %(queue)d has stood at the same message for %(age)s with %(lag)s unread; "
        "other queues move on.",
        "%(count)d queues stand still; queue %(queue)d has stood at the same message for %(age)s "
        "with %(lag)s unread.",
        int(seen["count"]),
    ) % {
        "count": seen["count"],
        "queue": seen["queue"],
        "age": span(seen["age_ms"]),
        "lag": number(seen["lag"]),
    }
    return said + poison(seen)


def stopped(seen: Evidence) -> str:
    return ngettext(
        "Nothing consumed for %(minutes)d min; %(lag)s message is unread.",
        "Nothing consumed for %(minutes)d min; %(lag)s messages are unread.",
        round(seen["lag"]),
    ) % {
        "minutes": seen["minutes"],
        "lag": number(seen["lag"]),
    }


def stalled(seen: Evidence) -> str:
    return _(
        "%(members)d members, %(lag)s unread messages, the oldest %(age)s old: "
        "nothing consumed in half an hour and more."
    ) % {
        "members": seen["members"],
        "lag": number(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def falling_behind(seen: Evidence) -> str:
    return _(
        "Lag %(before)s → %(now)s in %(minutes)d min, while %(consumed)s msg/s are consumed."
    ) % {
        "before": number(seen["before"]),
        "now": number(seen["now"]),
        "minutes": seen["minutes"],
        "consumed": rate(seen["consumed"]),
    }


def retention(seen: Evidence) -> str:
    said = {
        "lag": number(seen["lag"]),
        "kept": span(seen["kept_ms"]),
        "left": span(seen["left_ms"]),
    }
    if not seen["left_ms"]:
        return _("Messages are deleted unread after %(kept)s; %(lag)s are unread now.") % said
    return (
        _("In %(left)s the oldest of %(lag)s unread messages is deleted; they are kept %(kept)s.")
        % said
    )


def rewound(seen: Evidence) -> str:
    return ngettext(
        "Offsets went back by %(count)s message within %(minutes)d min.",
        "Offsets went back by %(count)s messages within %(minutes)d min.",
        round(seen["count"]),
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
    }


def no_consumer(seen: Evidence) -> str:
    return ngettext(
        "No member is connected; %(lag)s message is unread, %(age)s old.",
        "No member is connected; %(lag)s messages are unread, the oldest %(age)s old.",
        round(seen["lag"]),
    ) % {
        "lag": number(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def dead_letters(seen: Evidence) -> str:
    count = round(seen["count"])
    said = ngettext(
        "%(count)s message was given up within %(minutes)d min.",
        "%(count)s messages were given up within %(minutes)d min.",
        count,
    ) % {"count": grouped(count), "minutes": seen["minutes"]}
    return said + came_back(seen)


def many_retries(seen: Evidence) -> str:
    said = _(
        "%(count)s messages came back within %(minutes)d min: %(share)d %% of those consumed."
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
        "share": round(seen["share"] * 100),
    }
    return said + came_back(seen)


def requests_refused(seen: Evidence) -> str:
    return ngettext(
        "The broker refused %(count)s request within %(minutes)d min.",
        "The broker refused %(count)s requests within %(minutes)d min.",
        round(seen["count"]),
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
    }


def puts_fail(seen: Evidence) -> str:
    return ngettext(
        "%(count)s message could not be stored within %(minutes)d min.",
        "%(count)s messages could not be stored within %(minutes)d min.",
        round(seen["count"]),
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
    }


def disk_fills(seen: Evidence) -> str:
    if not seen["days"]:
        return _("The disk is %(used)d %% full: old messages are deleted before their time.") % {
            "used": math.floor(seen["used"] * 100)
        }
    return _("The disk is %(used)d %% full and takes %(pace)s a day more: 85 %% in %(left)s.") % {
        "used": round(seen["used"] * 100),
        "pace": bytes_text(seen["a_day"]),
        "left": duration(seen["days"] * 86_400),
    }


def slow_flush(seen: Evidence) -> str:
    return _("One flush of a hundred takes %(p99)d ms and more, half of them %(p50)d ms.") % {
        "p99": round(seen["p99_ms"]),
        "p50": round(seen["p50_ms"]),
    }


def half_messages(seen: Evidence) -> str:
    return _("%(count)s transactions are undecided, the oldest for %(age)s.") % {
        "count": number(seen["count"]),
        "age": span(seen["age_ms"]),
    }


def few_replicas(seen: Evidence) -> str:
    return _("%(now)d of %(least)d replicas are in sync, this broker included.") % {
        "now": seen["now"],
        "least": seen["least"],
    }


def slave_gone(seen: Evidence) -> str:
    return _("Slaves %(before)d → %(now)d, for %(minutes)d min.") % {
        "before": seen["before"],
        "now": seen["now"],
        "minutes": seen["minutes"],
    }


def slave_behind(seen: Evidence) -> str:
    return _("%(lag)s of the log are lacking, the oldest for %(age)s.") % {
        "lag": bytes_text(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def percent(share: float) -> int:
    return round(share * 100)


def mismatch(seen: Evidence) -> str:
    count = round(seen["odd"])
    said = ngettext(
        "%(count)s of %(members)s members subscribes to something else than the others.",
        "%(count)s of %(members)s members subscribe to something else than the others.",
        count,
    ) % {"count": grouped(count), "members": number(seen["members"])}
    if seen.get("wants"):
        said += " " + _("Subscriptions: %(wants)s.") % {"wants": seen["wants"]}
    if seen.get("odd_clients"):
        said += " " + _("Clients: %(clients)s.") % {"clients": seen["odd_clients"]}
    return said


def many_versions(seen: Evidence) -> str:
    said = _("The members' clients have %(versions)d versions.") % {
        "versions": round(seen["versions"])
    }
    return f"{said} {seen['kinds']}." if seen.get("kinds") else said


def hot_queue(seen: Evidence) -> str:
    said = {
        "queue": seen["queue"],
        "share": percent(seen["share"]),
        "rate": rate(seen["rate"]),
        "queues": seen.get("queues", ""),
    }
    if seen.get("queues"):
        return (
            _(
                "Queue %(queue)d gets %(share)d %% of the topic's %(rate)s msg/s; there are "
                "%(queues)s queues."
            )
            % said
        )
    return _("Queue %(queue)d gets %(share)d %% of the topic's %(rate)s msg/s.") % said


def hot_key(seen: Evidence) -> str:
    return _("%(share)d %% of the messages have the same key, at %(rate)s msg/s.") % {
        "share": percent(seen["share"]),
        "rate": rate(seen["rate"]),
    }


def near_limit(seen: Evidence) -> str:
    said = _("A message of %(size)s came; the broker takes %(limit)s at most.") % {
        "size": bytes_text(seen["size"]),
        "limit": bytes_text(seen["limit"]),
    }
    if "message_offset" not in seen:
        return said
    place = {"queue": seen["message_queue"], "offset": seen["message_offset"]}
    return said + " " + _("It is in queue %(queue)s at offset %(offset)s.") % place


def clock_off(seen: Evidence) -> str:
    if not seen.get("host"):
        return _("The clock of a client is off by %(off)s.") % {"off": span(seen["off_ms"])}
    said = {"host": seen["host"], "off": span(seen["off_ms"]), "topic": seen.get("topic", "")}
    text = (
        _("The clock of %(host)s is %(off)s ahead of the broker's; it sends to %(topic)s.")
        if seen.get("way") == "ahead"
        else _("The clock of %(host)s is %(off)s behind the broker's; it sends to %(topic)s.")
    )
    more = int(seen.get("hosts", "1")) - 1
    if more > 0:
        text += " " + ngettext(
            "%(more)d other client, too.", "%(more)d other clients, too.", more
        ) % {"more": more}
    return text % said


def cold_reads(seen: Evidence) -> str:
    return _(
        "%(count)s messages came from the disk within %(minutes)d min: %(share)d %% of those "
        "consumed."
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
        "share": percent(seen["share"]),
    }
