"""ReportError: tells people in one sentence why a report can't be made.

ReportError
 +-- DataLossError        messages in the range no longer exist
 +-- DamageError          messages in the range are damaged, and mode=FAILFAST
 +-- JavaMissingError     analytics.java
 +-- LakeError            an operation on the lake failed
      +-- LakeStoppedError   lake and log disagree; ingest stops until an operator decides
      +-- LakeBusyError      another process is working on the lake
ReportCancelledError
"""

from __future__ import annotations

import re


class ReportError(Exception):
    """A report can't be made; str() says why and how to fix it, in one sentence."""


class DataLossError(ReportError):
    """Messages in the range have been deleted, or weren't returned."""


class DamageError(ReportError):
    """Messages in the range are damaged, and the caller asked to stop at damage."""


class LakeError(ReportError):
    """An operation on the lake failed."""


class LakeStoppedError(LakeError):
    """Lake and log disagree; the sentence names the command that resolves it."""


class LakeBusyError(LakeError):
    """Another process is working on the lake; try again later."""


class ReportCancelledError(Exception):
    """The run was cancelled; nothing was published."""


_OUR_SENTENCE = re.compile(r"(?:ReportError|DataLossError|DamageError|LakeError): (.+)")


def sentence_in(text: str) -> str | None:
    """Return the sentence of a ReportError inside Spark's error message, or None."""
    found = _OUR_SENTENCE.search(text)
    return None if found is None else found.group(1).strip()
