"""Check one store directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.formats.checkpoint import decode as decode_checkpoint
from broker_core.verify.documents import check_documents, known_topics
from broker_core.verify.index import IndexCheck
from broker_core.verify.log import Log
from broker_core.verify.queues import QueueCheck
from broker_core.verify.report import Report

if TYPE_CHECKING:
    from pathlib import Path


def verify(root: Path, commit_log: Path | None = None) -> Report:
    """Check a store directory; return the findings."""
    report = Report(str(root), clean_exit=not (root / "abort").exists())
    # Note the end of the log first: anything written later is ahead of it.
    log = Log(commit_log or root / "commitlog", report)
    queues = QueueCheck(root, known_topics(root), report)
    log.check(queues)
    queues.check(log)
    IndexCheck(root, log, report).check()
    path = root / "checkpoint"
    if path.exists():
        report.checkpoint = decode_checkpoint(path.read_bytes())._asdict()
    check_documents(root, queues.ends, report)
    return report
