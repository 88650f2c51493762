"""What open live views go by: their sessions, and the rules of masking."""

from __future__ import annotations

from console.accounts.session_watch import SessionWatch
from console.masking.seeing import every_rule

session_watch = SessionWatch(shared=lambda: [each.as_kept for each in every_rule()])
"""The one of this process."""
