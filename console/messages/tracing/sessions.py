"""Sessions and masking rules that open live views depend on."""

from __future__ import annotations

from console.accounts.session_watch import SessionWatch
from console.people.masking.access import every_rule

session_watch = SessionWatch(shared=lambda: [each.as_kept for each in every_rule()])
"""The shared watch of this process."""
