"""The tree of exceptions.

Named by the handler's reaction::

    BrokerError                 never raised itself
      ConfigError               key, value, valid values               -> exit 2 before a port opens
      StoreError                the store can't be used                -> exit, one sentence
        CorruptRecordError      file, commit_log_offset, reason        -> recovery decides
        StoreUnavailableError   closed, disk full, write failed        -> SERVICE_NOT_AVAILABLE
      FrameError                the peer broke framing                 -> close the connection
        Http2ConnectionError    the peer broke HTTP/2: code            -> GOAWAY, close
      Http2StreamError          one stream broke HTTP/2: code          -> RST_STREAM
      CallRefusedError          a gRPC call: status, message           -> that grpc-status
      ProtobufError             bytes that aren't the expected message -> grpc-status INTERNAL
      PropertiesError           a message's properties can't be encoded -> MESSAGE_ILLEGAL
      RequestRefusedError       valid request, refused                 -> that code, remark, fields
        AbortProcessError       the same, by an extension              -> that ResponseCode
      ReplicationError          the other end of an HA connection      -> close that connection
      RemotingError             our request to another process failed  -> the caller may retry
        RemotingConnectError    no connection
        RemotingTimeoutError    no answer in time
        RemotingSendError       the connection ended before the answer
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


class BrokerError(Exception):
    """Root of the tree; never raised directly."""


class ConfigError(BrokerError):
    """A configuration value that can't be used."""

    def __init__(self, key: str, value: str, expected: str) -> None:
        super().__init__(f"{key}={value}: expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected


class StoreError(BrokerError):
    """The store directory can't be used; the text is one sentence for the operator."""


class CorruptRecordError(StoreError):
    """Bytes that should be a record but aren't."""

    def __init__(self, file: str, commit_log_offset: int, reason: str) -> None:
        super().__init__(f"{file}: damaged record at offset {commit_log_offset}: {reason}")
        self.file = file
        self.commit_log_offset = commit_log_offset
        self.reason = reason


class StoreUnavailableError(StoreError):
    """The store currently refuses writes: closed, disk full, or a write or flush failed."""


class FrameError(BrokerError):
    """A peer sent bytes that aren't a frame; its connection is closed."""


class Http2ConnectionError(FrameError):
    """A peer broke HTTP/2 in a way that ends its connection; `code` goes into the GOAWAY."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Http2StreamError(BrokerError):
    """A peer broke HTTP/2 on one stream; `code` goes into the RST_STREAM."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class CallRefusedError(BrokerError):
    """A refused gRPC call: its grpc-status and grpc-message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ProtobufError(BrokerError):
    """Bytes that don't encode the expected protobuf message."""


class PropertiesError(BrokerError):
    """A message's properties that can't be decoded to the same values after encoding."""


class RequestRefusedError(BrokerError):
    """A refused request: the answer's code, remark and ext fields."""

    def __init__(
        self, code: int, remark: str | None, ext_fields: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext_fields: Mapping[str, str] = {} if ext_fields is None else ext_fields

    def with_fields(self, ext_fields: Mapping[str, str]) -> Self:
        """Return this refusal with more ext fields; its existing fields take precedence."""
        self.ext_fields = {**ext_fields, **self.ext_fields}
        return self


class AccessRefusedError(RequestRefusedError):
    """A request that access control refuses."""


class CallStatusError(BrokerError):
    """A refused call of a RocketMQ 5 client: the code and the text of its answer's status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class AbortProcessError(RequestRefusedError):
    """An extension refuses a request: the answer's code (1 to 32,767) and remark."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(code, remark)


class ReplicationError(BrokerError):
    """An HA peer can't be followed or served; the text is one sentence for the operator."""


class RemotingError(BrokerError):
    """A call to another process failed."""


class RemotingConnectError(RemotingError):
    """No connection could be made; nothing was sent."""


class RemotingTimeoutError(RemotingError):
    """No answer arrived in time; the peer may have executed the request."""


class RemotingSendError(RemotingError):
    """The connection ended before the answer; the peer may have executed the request."""
