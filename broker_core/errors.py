"""The tree of exceptions.

Named by what the handler must do::

    BrokerError                 never raised itself
      ConfigError               key, value, what would be right        -> exit 2 before a port opens
      StoreError                the store cannot be used               -> exit, one sentence
        CorruptRecordError      file, commit_log_offset, reason        -> recovery decides
        StoreUnavailableError   closed, disk full, write failed        -> SERVICE_NOT_AVAILABLE
      FrameError                the peer broke framing                 -> close the connection
      RequestRefusedError       understood, and no: code, remark       -> that ResponseCode
        AbortProcessError       the same, said by an extension         -> that ResponseCode
      RemotingError             we called out                          -> the caller may retry
        RemotingConnectError    no connection
        RemotingTimeoutError    no answer in time
        RemotingSendError       the connection ended before the answer
      ReplicationError          an HA peer misbehaved                  -> drop that connection
"""

from __future__ import annotations


class BrokerError(Exception):
    """Root of the tree; never raised itself."""


class ConfigError(BrokerError):
    """A configuration value that cannot be used."""

    def __init__(self, key: str, value: str, expected: str) -> None:
        super().__init__(f"{key}={value}: expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected


class StoreError(BrokerError):
    """The store directory cannot be used; the text is one sentence for the operator."""


class CorruptRecordError(StoreError):
    """Bytes that are not the record they should be."""

    def __init__(self, file: str, commit_log_offset: int, reason: str) -> None:
        super().__init__(f"{file}: damaged record at offset {commit_log_offset}: {reason}")
        self.file = file
        self.commit_log_offset = commit_log_offset
        self.reason = reason


class StoreUnavailableError(StoreError):
    """The store takes no writes now: closed, disk full, or a write or flush failed."""


class FrameError(BrokerError):
    """A peer sent bytes that are not a frame; its connection is closed."""


class RequestRefusedError(BrokerError):
    """A request that was understood and refused: the answer's code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class AbortProcessError(RequestRefusedError):
    """An extension refuses a request: the answer's code (1 to 32,767) and remark."""


class RemotingError(BrokerError):
    """A call to another process failed."""


class RemotingConnectError(RemotingError):
    """No connection could be made; nothing was sent."""


class RemotingTimeoutError(RemotingError):
    """No answer came in time; the peer may have done what was asked."""


class RemotingSendError(RemotingError):
    """The connection ended before the answer; the peer may have done what was asked."""


class ReplicationError(BrokerError):
    """A replica sent what it must not send; its connection is dropped."""
