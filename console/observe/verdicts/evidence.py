"""The evidence of a verdict: for each rule, one sentence made of its numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from console.ui.templatetags.ui import bytes_text, duration, grouped, rate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    # Numbers, and names of the things they belong to.
    Evidence = Mapping[str, Any]


def number(value: float) -> str:
    return grouped(round(value))


def span(milliseconds: float) -> str:
    return str(duration(milliseconds / 1000))


def redelivery(seen: Evidence) -> str:
    """Return a sentence about the most redelivered message, or ""."""
    times = int(seen.get("times", "0"))
    if not times or not seen.get("message"):
        return ""
    return " " + ngettext(
        "Message %(message)s was redelivered %(times)d time.",
        "Message %(message)s was redelivered %(times)d times.",
        times,
    ) % {"message": seen["message"], "times": times}


def poison(seen: Evidence) -> str:
    """Return a sentence about the message that blocks a queue."""
    if "offset" not in seen:
        return ""
    values = {
        "message": seen.get("message") or _("without an ID"),
        "offset": seen["offset"],
        "size": bytes_text(int(seen["bytes"])),
        "host": seen["host"],
    }
    first = _("The message is %(message)s at offset %(offset)s: %(size)s, from %(host)s.") % values
    return f" {first}{redelivery(seen)}"


def queue_stuck(seen: Evidence) -> str:
    text = ngettext(
        "Queue %(queue)d has been stuck at the same message for %(age)s with %(lag)s unread; "
        "other queues are progressing.",
        "%(count)d queues are stuck; queue %(queue)d has been at the same message for %(age)s "
        "with %(lag)s unread.",
        int(seen["count"]),
    ) % {
        "count": seen["count"],
        "queue": seen["queue"],
        "age": span(seen["age_ms"]),
        "lag": number(seen["lag"]),
    }
    return text + poison(seen)


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
        "%(members)d consumers, %(lag)s unread messages, the oldest %(age)s old. Nothing has "
        "been consumed for over 30 minutes."
    ) % {
        "members": seen["members"],
        "lag": number(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def falling_behind(seen: Evidence) -> str:
    return _(
        "Lag went from %(before)s to %(now)s in %(minutes)d min, with %(consumed)s msg/s consumed."
    ) % {
        "before": number(seen["before"]),
        "now": number(seen["now"]),
        "minutes": seen["minutes"],
        "consumed": rate(seen["consumed"]),
    }


def retention(seen: Evidence) -> str:
    values = {
        "lag": number(seen["lag"]),
        "kept": span(seen["kept_ms"]),
        "left": span(seen["left_ms"]),
    }
    if not seen["left_ms"]:
        return (
            _("Messages are deleted after %(kept)s without being read; %(lag)s are unread now.")
            % values
        )
    return (
        _(
            "The oldest of %(lag)s unread messages will be deleted in %(left)s. Retention is "
            "%(kept)s."
        )
        % values
    )


def rewound(seen: Evidence) -> str:
    return ngettext(
        "Offsets were rewound by %(count)s message within %(minutes)d min.",
        "Offsets were rewound by %(count)s messages within %(minutes)d min.",
        round(seen["count"]),
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
    }


def no_consumer(seen: Evidence) -> str:
    return ngettext(
        "No consumers are connected. %(lag)s message is unread, %(age)s old.",
        "No consumers are connected. %(lag)s messages are unread, the oldest %(age)s old.",
        round(seen["lag"]),
    ) % {
        "lag": number(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def dead_letters(seen: Evidence) -> str:
    count = round(seen["count"])
    text = ngettext(
        "%(count)s message became a dead letter within %(minutes)d min.",
        "%(count)s messages became dead letters within %(minutes)d min.",
        count,
    ) % {"count": grouped(count), "minutes": seen["minutes"]}
    return text + redelivery(seen)


def many_retries(seen: Evidence) -> str:
    text = _(
        "%(count)s messages were retried within %(minutes)d min: %(share)d %% of those consumed."
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
        "share": round(seen["share"] * 100),
    }
    return text + redelivery(seen)


def requests_refused(seen: Evidence) -> str:
    return ngettext(
        "The broker rejected %(count)s request within %(minutes)d min.",
        "The broker rejected %(count)s requests within %(minutes)d min.",
        round(seen["count"]),
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
    }


def puts_fail(seen: Evidence) -> str:
    return ngettext(
        "%(count)s message couldn't be stored within %(minutes)d min.",
        "%(count)s messages couldn't be stored within %(minutes)d min.",
        round(seen["count"]),
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
    }


def disk_fills(seen: Evidence) -> str:
    if not seen["days"]:
        return _(
            "The disk is %(used)d %% full. The broker is deleting messages before their "
            "retention ends."
        ) % {"used": math.floor(seen["used"] * 100)}
    return _(
        "The disk is %(used)d %% full and growing by %(pace)s a day. It reaches 85 %% in %(left)s."
    ) % {
        "used": round(seen["used"] * 100),
        "pace": bytes_text(seen["a_day"]),
        "left": duration(seen["days"] * 86_400),
    }


def slow_flush(seen: Evidence) -> str:
    return _("1 in 100 flushes takes %(p99)d ms or longer; the median is %(p50)d ms.") % {
        "p99": round(seen["p99_ms"]),
        "p50": round(seen["p50_ms"]),
    }


def half_messages(seen: Evidence) -> str:
    return _("%(count)s transactions are pending, the oldest for %(age)s.") % {
        "count": number(seen["count"]),
        "age": span(seen["age_ms"]),
    }


def few_replicas(seen: Evidence) -> str:
    return _("%(now)d of %(least)d replicas are in sync, including this broker.") % {
        "now": seen["now"],
        "least": seen["least"],
    }


def slave_gone(seen: Evidence) -> str:
    return _("Slaves dropped from %(before)d to %(now)d, %(minutes)d min ago.") % {
        "before": seen["before"],
        "now": seen["now"],
        "minutes": seen["minutes"],
    }


def slave_behind(seen: Evidence) -> str:
    return _(
        "The slave is missing %(lag)s of the log; the oldest part has been missing for %(age)s."
    ) % {
        "lag": bytes_text(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def percent(share: float) -> int:
    return round(share * 100)


def mismatch(seen: Evidence) -> str:
    count = round(seen["odd"])
    said = ngettext(
        "%(count)s of %(members)s consumers has a different subscription from the others.",
        "%(count)s of %(members)s consumers have different subscriptions from the others.",
        count,
    ) % {"count": grouped(count), "members": number(seen["members"])}
    if seen.get("wants"):
        said += " " + _("Subscriptions: %(wants)s.") % {"wants": seen["wants"]}
    if seen.get("odd_clients"):
        said += " " + _("Clients: %(clients)s.") % {"clients": seen["odd_clients"]}
    return said


def many_versions(seen: Evidence) -> str:
    text = _("The consumers run %(versions)d different client versions.") % {
        "versions": round(seen["versions"])
    }
    return f"{text} {seen['kinds']}." if seen.get("kinds") else text


def hot_queue(seen: Evidence) -> str:
    values = {
        "queue": seen["queue"],
        "share": percent(seen["share"]),
        "rate": rate(seen["rate"]),
        "queues": seen.get("queues", ""),
    }
    if seen.get("queues"):
        return (
            _(
                "Queue %(queue)d receives %(share)d %% of the topic's %(rate)s msg/s. The "
                "topic has %(queues)s queues."
            )
            % values
        )
    return _("Queue %(queue)d receives %(share)d %% of the topic's %(rate)s msg/s.") % values


def hot_key(seen: Evidence) -> str:
    return _("%(share)d %% of the messages have the same key, at %(rate)s msg/s.") % {
        "share": percent(seen["share"]),
        "rate": rate(seen["rate"]),
    }


def near_limit(seen: Evidence) -> str:
    text = _("A message of %(size)s was received. The broker's limit is %(limit)s.") % {
        "size": bytes_text(seen["size"]),
        "limit": bytes_text(seen["limit"]),
    }
    if "message_offset" not in seen:
        return text
    place = {"queue": seen["message_queue"], "offset": seen["message_offset"]}
    return text + " " + _("The message is in queue %(queue)s at offset %(offset)s.") % place


def clock_off(seen: Evidence) -> str:
    if not seen.get("host"):
        return _("A client's clock is off by %(off)s.") % {"off": span(seen["off_ms"])}
    values = {"host": seen["host"], "off": span(seen["off_ms"]), "topic": seen.get("topic", "")}
    text = (
        _("The clock of %(host)s, which sends to %(topic)s, is %(off)s ahead of the broker's.")
        if seen.get("way") == "ahead"
        else _("The clock of %(host)s, which sends to %(topic)s, is %(off)s behind the broker's.")
    )
    more = int(seen.get("hosts", "1")) - 1
    if more > 0:
        text += " " + ngettext(
            "%(more)d other client is affected too.",
            "%(more)d other clients are affected too.",
            more,
        ) % {"more": more}
    return text % values


def cold_reads(seen: Evidence) -> str:
    return _(
        "%(count)s messages were read from disk within %(minutes)d min: %(share)d %% of those "
        "consumed."
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
        "share": percent(seen["share"]),
    }
