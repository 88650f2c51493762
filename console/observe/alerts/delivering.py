"""Delivers one message by HTTP or mail, and decides whether to retry."""

from __future__ import annotations

import http.client
import json
import logging
import smtplib
import ssl
from dataclasses import replace
from email.mime.image import MIMEImage
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.core.mail import BadHeaderError, EmailMultiAlternatives, get_connection
from django.utils import translation
from django.utils.translation import gettext as _

from console.observe.alerts.models import Channel
from console.observe.alerts.payloads import body_of, cut, dingtalk_query, headline, plain, signature
from console.observe.alerts.pictures import picture_from_json
from console.observe.alerts.posting import request
from console.observe.alerts.rasters import png_of
from console.observe.alerts.results import RESULT, as_html
from console.observe.alerts.targets import TargetError, parsed

if TYPE_CHECKING:
    from console.observe.alerts.models import Message
    from console.observe.alerts.posting import Answer

logger = logging.getLogger(__name__)

LATER = {408, 425, 429}
"""4xx statuses that are worth a retry."""
TEXT_SHOWN_MAX = 200
PICTURE_NAME, PICTURE_ID = "chart.png", "chart@trebuchet"
DINGTALK_TOO_OFTEN = {130101, 410100}


class Outcome(NamedTuple):
    """The result of one try. `is_refused` means that a retry is unlikely to help."""

    arrived: bool
    what: str
    is_refused: bool = False
    retry_after_s: int | None = None


def deliver(message: Message, now_ms: int) -> Outcome:
    """Try once; never raises for errors of the receiver or the network."""
    try:
        if message.channel.kind == Channel.Kind.EMAIL:
            return by_mail(message)
        return by_http(message, now_ms)
    except TargetError as error:
        return Outcome(False, str(error), is_refused=True)
    except ssl.SSLCertVerificationError as error:
        what = _("The certificate isn't trusted: %(why)s.") % {"why": error.verify_message}
        return Outcome(False, what)
    except (OSError, http.client.HTTPException) as error:
        # The error's text may contain data from the peer, so use only its type.
        what = error.strerror if isinstance(error, OSError) and error.strerror else ""
        return Outcome(False, _("No response: %(why)s.") % {"why": what or type(error).__name__})


def by_http(message: Message, now_ms: int) -> Outcome:
    channel = message.channel
    target = parsed(channel.url)
    with translation.override(channel.speaks):
        body = body_of(message)
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "X-Trebuchet-Delivery": str(message.pk),
    }
    if channel.kind == Channel.Kind.DINGTALK and channel.secret:
        target = replace(target, path=target.path + dingtalk_query(channel.secret, now_ms))
    elif channel.kind == Channel.Kind.WEBHOOK and channel.secret:
        timestamp = str(now_ms // 1000)
        headers["X-Trebuchet-Timestamp"] = timestamp
        headers["X-Trebuchet-Signature"] = signature(channel.secret, timestamp, body)
    return outcome_of(channel.kind, request("POST", target, headers, body))


def outcome_of(kind: str, answer: Answer) -> Outcome:
    """Evaluate a response; DingTalk reports rejection in the body of a 200."""
    status = f"{answer.status} {answer.reason}".strip()
    if 200 <= answer.status < 300:
        if kind == Channel.Kind.DINGTALK:
            return outcome_of_dingtalk(answer)
        return Outcome(True, status)
    if 300 <= answer.status < 400:
        return Outcome(
            False, _("%(status)s: redirects aren't followed.") % {"status": status}, True
        )
    what = status
    if kind != Channel.Kind.WEBHOOK and answer.text.strip():
        what = f"{status}: {shown_text(answer.text)}"
    is_refused = 400 <= answer.status < 500 and answer.status not in LATER
    return Outcome(False, what, is_refused, answer.retry_after_s)


def outcome_of_dingtalk(answer: Answer) -> Outcome:
    try:
        body = json.loads(answer.text)
        code, text = int(body["errcode"]), str(body.get("errmsg", ""))
    except (ValueError, KeyError, TypeError):
        return Outcome(False, _("The response didn't come from DingTalk."))
    if code == 0:
        return Outcome(True, "errcode 0")
    return Outcome(False, f"errcode {code}: {shown_text(text)}", code not in DINGTALK_TOO_OFTEN)


def shown_text(text: str) -> str:
    return " ".join(text.split())[:TEXT_SHOWN_MAX]


class Mail(EmailMultiAlternatives):
    """An email whose pictures are shown inline."""

    mixed_subtype = "related"


def _show_result(mail: Mail, content: dict[str, Any]) -> None:
    """Add a result's table to an email, with its picture above it."""
    picture = picture_from_json(content["picture"])
    if picture is None:
        mail.attach_alternative(as_html(content), "text/html")
        return
    mail.attach_alternative(as_html(content, f"cid:{PICTURE_ID}"), "text/html")
    # An inline PNG, because mail clients show neither SVG nor remote images.
    image = MIMEImage(png_of(picture), "png")
    image.add_header("Content-ID", f"<{PICTURE_ID}>")
    image.add_header("Content-Disposition", "inline", filename=PICTURE_NAME)
    mail.attach(image)


def mail_of(message: Message) -> Mail:
    host = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].strip("<> ") or "trebuchet"
    content = message.content
    mail = Mail(
        subject=cut(headline(content)),
        body=plain(content),
        to=list(message.channel.addresses),
        headers={
            # The same on every try, so that mailboxes can drop duplicates.
            "Message-ID": f"<alert-{message.pk}-{message.created_ms}@{host}>",
            "Auto-Submitted": "auto-generated",
        },
        connection=get_connection(fail_silently=False),
    )
    if content["status"] == RESULT:
        _show_result(mail, content)
    return mail


def by_mail(message: Message) -> Outcome:
    channel = message.channel
    if not settings.EMAIL_HOST:
        return Outcome(False, _("No mail server is configured (TREBUCHET_SMTP)."), is_refused=True)
    with translation.override(channel.speaks):
        mail = mail_of(message)
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        codes = sorted({code for code, _text in error.recipients.values()})
        return Outcome(
            False,
            _("The mail server rejected the recipients: %(codes)s.")
            % {"codes": ", ".join(str(code) for code in codes)},
            all(code >= 500 for code in codes),
        )
    except smtplib.SMTPAuthenticationError as error:
        what = _("The mail server rejected the user name or password: %(code)s.")
        return Outcome(False, what % {"code": error.smtp_code})
    except smtplib.SMTPResponseException as error:
        what = _("The mail server returned %(code)s.") % {"code": error.smtp_code}
        return Outcome(False, what, error.smtp_code >= 500)
    except smtplib.SMTPException as error:
        return Outcome(False, _("No response: %(why)s.") % {"why": type(error).__name__})
    except BadHeaderError:
        return Outcome(False, _("The message can't be sent as e-mail."), is_refused=True)
    return Outcome(True, _("The mail server accepted the message."))
