"""Failures: the error boundary around calls of extensions."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from broker_core.errors import AbortProcessError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Failures:
    """Records the failures of extensions. Event loop only.

    The first failure of each extension is logged with its traceback, and all are counted, so that
    an extension that fails at every message doesn't fill a disk.

    Attributes:
        counts: failures by extension.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def call(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of an extension.

        Raises:
            AbortProcessError: the extension refuses.
            ExtensionFailedError: any other exception; it is logged and counted.
        """
        try:
            return function(*args, **kwargs)
        except AbortProcessError:
            raise
        except (Exception, SystemExit) as error:
            # An error, or sys.exit(), in an extension must not end the broker.
            self.raised(name, getattr(function, "__name__", "a call"), error)
            raise ExtensionFailedError(name) from error

    def attempt(
        self, name: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Call a method of an extension whose outcome, even a refusal, has no effect."""
        try:
            self.call(name, function, *args, **kwargs)
        except ExtensionFailedError:
            pass
        except AbortProcessError as error:
            self.raised(name, getattr(function, "__name__", "a call"), error)

    def note(self, name: str, what: str) -> None:
        """Count another error of an extension; `what` is a clause."""
        self.counts[name] += 1
        if self.counts[name] == 1:
            logger.error(
                "extension failed, later failures are only counted extension=%s reason=%s",
                name,
                what,
            )

    def raised(self, name: str, method: str, error: BaseException) -> None:
        """Count an exception of an extension's method."""
        self.counts[name] += 1
        if self.counts[name] == 1:
            logger.error(
                "extension failed, later failures are only counted extension=%s method=%s",
                name,
                method,
                exc_info=error,
            )


class ExtensionFailedError(Exception):
    """An extension failed; the caller decides how to react."""
