"""The payload of a message for each kind of channel.

Source: Slack's incoming webhooks with Block Kit; Adaptive Cards as Microsoft Teams Workflows accept
them; DingTalk custom robots with markdown and 加签 (a signature in the URL).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from django.utils.translation import gettext as _, ngettext

from console.observe.alerts.links import absolute, silence_link
from console.observe.alerts.models import Channel
from console.observe.alerts.pictures import picture_from_json, svg_of
from console.observe.alerts.results import RESULT, short_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.observe.alerts.models import Message

TEXT_CHARACTERS_MAX = 2_800
"""Slack accepts 3,000 characters per block."""
TITLE_CHARACTERS_MAX = 140
SIGNATURE_VERSION = "v1"


def headline(content: dict[str, Any]) -> str:
    """Return a message as one line."""
    if content["status"] == "test":
        return _("Test of channel %(name)s") % {"name": content["channel"]}
    if content["status"] == RESULT:
        return f"{content['name']}: {content['summary']}" if content["summary"] else content["name"]
    alerts = content["alerts"]
    if content.get("left_out"):
        return ngettext(
            "%(count)s message wasn't delivered. These alerts are firing now",
            "%(count)s messages weren't delivered. These alerts are firing now",
            content["left_out"],
        ) % {"count": content["left_out"]}
    if len(alerts) == 1:
        names = {"subject": alerts[0]["subject"], "title": alerts[0]["title"]}
        if content["status"] == "resolved":
            return _("Resolved: %(subject)s: %(title)s") % names
        if content.get("repeat"):
            return _("Still firing: %(subject)s: %(title)s") % names
        return _("Firing: %(subject)s: %(title)s") % names
    if content["status"] == "resolved":
        count = content["resolved"]
        words = ngettext(
            "%(count)d alert of %(rule)s resolved", "%(count)d alerts of %(rule)s resolved", count
        )
    else:
        count = content["firing"]
        words = ngettext(
            "%(count)d alert of %(rule)s is firing",
            "%(count)d alerts of %(rule)s are firing",
            count,
        )
    return words % {"count": count, "rule": content["rule"]}


def lines(content: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (heading, text, address) for each alert."""
    if content["status"] == RESULT:
        yield content["name"], short_table(content), absolute(content["path"])
    for each in content.get("alerts", ()):
        state = _("Firing") if each["status"] == "firing" else _("Resolved")
        if each["ended_why"] == "unknown":
            state = _("Now unknown")
        text = each["evidence"]
        if each["status"] == "firing" and each["step"]:
            text = f"{text} {each['step']}"
        heading = f"{state}: {each['subject']}: {each['title']} ({each['broker'] or each['name']})"
        yield heading, text, absolute(each["path"]) if each["path"] else ""
    if content["status"] == "test":
        yield _("This is only a test. Someone pressed the test button."), "", ""
    if content.get("more"):
        yield _("and %(count)d more") % {"count": content["more"]}, "", ""


def links(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (label, address) for the links below a message."""
    if content["status"] == RESULT:
        yield _("Full result"), absolute(content["path"])
        return
    yield _("Alerts"), absolute("/alerts/")
    if address := silence_link(content):
        yield _("Silence"), address


def plain(content: dict[str, Any]) -> str:
    """Return a message as plain text, for email."""
    parts = []
    for heading, text, address in lines(content):
        parts.append("\n".join(each for each in (heading, text, address) if each))
    parts.append("\n".join(f"{label}: {address}" for label, address in links(content)))
    return "\n\n".join(parts) + "\n"


def generic(message: Message, content: dict[str, Any]) -> dict[str, Any]:
    """Return the webhook JSON, version 1: fields may be added and are never removed."""
    return {
        "version": 1,
        "id": str(message.pk),
        "channel": message.channel.name,
        "created_ms": message.created_ms,
        "status": content["status"],
        "severity": content.get("severity", ""),
        "title": headline(content),
        "rule": content.get("rule", ""),
        "repeat": bool(content.get("repeat")),
        "firing": content.get("firing", 0),
        "resolved": content.get("resolved", 0),
        "more": content.get("more", 0),
        "left_out": content.get("left_out", 0),
        "alerts": [
            {
                **{name: value for name, value in each.items() if name != "path"},
                "url": absolute(each["path"]) if each["path"] else "",
            }
            for each in content.get("alerts", ())
        ],
        "result": result_of(content),
        "url": absolute(content.get("path", "/alerts/")),
        "silence_url": silence_link(content),
    }


def result_of(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return a result's table and picture, or None if a message is about alerts."""
    if content["status"] != RESULT:
        return None
    names = ("name", "summary", "columns", "rows", "more")
    picture = picture_from_json(content["picture"])
    svg = "" if picture is None else svg_of(picture)
    return {**{name: content[name] for name in names}, "picture_svg": svg}


def slack(content: dict[str, Any]) -> dict[str, Any]:
    def escaped(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    parts = []
    for heading, text, address in lines(content):
        title = escaped(heading)
        parts.append(f"*<{address}|{title}>*" if address else f"*{title}*")
        if text:
            parts.append(escaped(text))
    foot = "  ".join(f"<{address}|{escaped(label)}>" for label, address in links(content))
    title = headline(content)
    body = cut_lines(parts, TEXT_CHARACTERS_MAX)
    return {
        "text": escaped(title),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": cut(title)}},
            {"type": "section", "text": {"type": "mrkdwn", "text": body}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": foot}]},
        ],
    }


def teams(content: dict[str, Any]) -> dict[str, Any]:
    colours = {"resolved": "Good", "test": "Accent", RESULT: "Accent"}
    worst = "Attention" if content.get("severity") == "bad" else "Warning"
    body: list[dict[str, Any]] = [
        {
            "type": "TextBlock",
            "text": cut(headline(content)),
            "weight": "Bolder",
            "size": "Medium",
            "wrap": True,
            "color": colours.get(content["status"], worst),
        }
    ]
    for heading, text, _address in lines(content):
        body.append({"type": "TextBlock", "text": heading, "weight": "Bolder", "wrap": True})
        if text:
            block = {"type": "TextBlock", "text": text, "wrap": True, "spacing": "None"}
            body.append(block)
    actions = [
        {"type": "Action.OpenUrl", "title": label, "url": address}
        for label, address in links(content)
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": actions,
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def dingtalk(content: dict[str, Any]) -> dict[str, Any]:
    parts = [f"### {headline(content)}"]
    for heading, text, address in lines(content):
        parts.append(f"- **[{heading}]({address})**" if address else f"- **{heading}**")
        if text:
            parts.append(f"  {text}")
    parts.append(" · ".join(f"[{label}]({address})" for label, address in links(content)))
    text = cut_lines(parts, TEXT_CHARACTERS_MAX)
    return {"msgtype": "markdown", "markdown": {"title": cut(headline(content)), "text": text}}


def cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARACTERS_MAX else f"{line[: TITLE_CHARACTERS_MAX - 1]}…"


def cut_lines(parts: list[str], characters_max: int) -> str:
    """Join as many whole lines as fit; a cut line could end inside a link."""
    kept: list[str] = []
    room = characters_max
    for part in parts:
        if len(part) + 1 > room:
            kept.append("…")
            break
        kept.append(part)
        room -= len(part) + 1
    return "\n".join(kept)


def body_of(message: Message) -> bytes:
    """Return a message's JSON for the kind of its channel."""
    content = message.content
    match message.channel.kind:
        case Channel.Kind.SLACK:
            made = slack(content)
        case Channel.Kind.TEAMS:
            made = teams(content)
        case Channel.Kind.DINGTALK:
            made = dingtalk(content)
        case _generic:
            made = generic(message, content)
    return json.dumps(made, ensure_ascii=False).encode()


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return a signature that proves that the sender of a body had the secret at that time."""
    signed = timestamp.encode() + b"." + body
    return f"{SIGNATURE_VERSION}=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def dingtalk_query(secret: str, now_ms: int) -> str:
    """Return the query parameters that a signed DingTalk robot requires."""
    signed = f"{now_ms}\n{secret}".encode()
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return f"&timestamp={now_ms}&sign={quote(base64.b64encode(digest), safe='')}"
