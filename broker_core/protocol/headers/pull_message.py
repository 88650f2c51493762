"""The bits of a pull's sysFlag, and its limit.

Source: common/sysflag/PullSysFlag.java (4.9.8).
"""

from __future__ import annotations

FLAG_COMMIT_OFFSET = 1
"""The request commits an offset."""
FLAG_SUSPEND = 2
"""The broker holds the pull until a message arrives."""
FLAG_SUBSCRIPTION = 4
"""The request contains a subscription."""
MAX_MSG_NUMS_MAX = 1024
"""Maximum number of messages in an answer."""
