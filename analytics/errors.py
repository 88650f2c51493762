"""ReportError: the one sentence a person reads when a report cannot be made.

ReportError
 +-- DataLossError        what was to be read is not there any more
 +-- DamageError          what was to be read is damaged, and mode=FAILFAST
 +-- JavaMissingError     analytics.java
 +-- LakeError            the lake cannot do what was asked
      +-- LakeStoppedError   lake and log disagree: nothing is written until somebody decides
      +-- LakeBusyError      somebody else works on the lake just now
ReportCancelledError
"""

from __future__ import annotations

import re


class ReportError(Exception):
    """A report cannot be made; str() is one sentence for people, with what would help."""


class DataLossError(ReportError):
    """Messages that were to be read have been deleted, or never came back."""


class DamageError(ReportError):
    """Messages that were to be read are damaged, and damage was to stop the reading."""


class LakeError(ReportError):
    """The lake cannot do what was asked."""


class LakeStoppedError(LakeError):
    """Lake and log disagree; the sentence names the command that decides."""


class LakeBusyError(LakeError):
    """Somebody else works on the lake just now; later it may be free."""


class ReportCancelledError(Exception):
    """Somebody asked the run to stop; nothing was published."""


_OUR_SENTENCE = re.compile(r"(?:ReportError|DataLossError|DamageError|LakeError): (.+)")


def sentence_in(text: str) -> str | None:
    """Return the sentence of our own error inside Spark's account of it, None without one."""
    found = _OUR_SENTENCE.search(text)
    return None if found is None else found.group(1).strip()
