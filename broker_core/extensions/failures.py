"""Failures: the boundary around calls of extensions."""

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
    """What went wrong in extensions. Event loop only.

    The first failure of each extension is logged with its traceback, all are counted: one that
    fails at every message must not fill a disk.

    Attributes:
        counts: failures by extension.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def call(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of an extension.

        Raises:
            AbortProcessError: the extension refuses.
            ExtensionFailedError: anything else that was raised; it is logged and counted.
        """
        try:
            return function(*args, **kwargs)
        except AbortProcessError:
            raise
        except (Exception, SystemExit) as error:
            # The boundary: a mistake, or sys.exit(), of an extension must not end the broker.
            self.raised(name, getattr(function, "__name__", "a call"), error)
            raise ExtensionFailedError(name) from error

    def attempt(
        self, name: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Call a method of an extension whose outcome changes nothing, refusals included."""
        try:
            self.call(name, function, *args, **kwargs)
        except ExtensionFailedError:
            pass
        except AbortProcessError as error:
            self.raised(name, getattr(function, "__name__", "a call"), error)

    def note(self, name: str, what: str) -> None:
        """Count another mistake of an extension; what is a clause."""
        self.counts[name] += 1
        if self.counts[name] == 1:
            logger.error("extension %s %s; its next failures are counted only", name, what)

    def raised(self, name: str, method: str, error: BaseException) -> None:
        """Count an exception of an extension's method."""
        self.counts[name] += 1
        if self.counts[name] == 1:
            logger.error(
                "extension %s failed in %s; its next failures are counted only",
                name,
                method,
                exc_info=error,
            )


class ExtensionFailedError(Exception):
    """An extension failed; its caller decides what that means."""
