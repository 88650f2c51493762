"""Loading: which of the twins serves plain sends, and replays plain records on a slave."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import ConfigError
from broker_core.native.place import MODULE, place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from broker_core.native.turn import NativePlainReplay, SendTurn

VARIABLE = "TREBUCHET_NATIVE"
COMMAND = "python -m broker_core.native.build"


class Native(NamedTuple):
    """The compiled turn, or why it is not used."""

    send_turn: type[SendTurn] | None
    words: str
    """For people: which twin serves, and why."""
    crc32: Callable[[bytes], int] | None = None
    """The turn's own, for the test that compares it."""
    plain_replay: type[NativePlainReplay] | None = None


def load(environment: Mapping[str, str] = os.environ) -> Native:
    """Load the compiled turn, unless TREBUCHET_NATIVE=0; 1: it must be there.

    Raises:
        ConfigError: it must be there, and is not; or the variable says something else.
    """
    wanted = environment.get(VARIABLE, "").strip()
    if wanted not in ("", "0", "1"):
        raise ConfigError(VARIABLE, wanted, "0, 1 or nothing")
    if wanted == "0":
        return Native(None, f"Python, as {VARIABLE}=0 wants it")
    path = place()
    try:
        module = _module(str(path))
    except (ImportError, OSError) as error:
        reason = f"there is no {path.name}" if not path.exists() else str(error)
        if wanted == "1":
            raise ConfigError(
                VARIABLE, wanted, f"the compiled turn, but {reason}; `{COMMAND}` compiles it"
            ) from error
        return Native(None, f"Python, since {reason}; `{COMMAND}` compiles it")
    return Native(module.SendTurn, "compiled", module.crc32, module.NativePlainReplay)


@lru_cache
def _module(path: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(MODULE, path)
    spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
    if spec is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
