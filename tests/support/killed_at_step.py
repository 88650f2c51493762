"""A broker that kills itself at a step.

`python -m tests.support.killed_at_step STEP TOPIC NTH -c FILE`, where STEP is `before` or `after`:
the process sends itself SIGKILL before or after its NTH put to the topic. Written data stays, as
after any kill -9.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from broker_core import __main__ as command
from broker_core.store.put import MessagePut

if TYPE_CHECKING:
    from collections.abc import Callable


def main(arguments: list[str]) -> int:
    step, topic, nth, *rest = arguments
    assert step in ("before", "after"), step
    left = int(nth)
    put_message: Callable[..., Any] = MessagePut.put_message

    def put_or_die(store: MessagePut, to_topic: str, *more: Any, **others: Any) -> Any:
        nonlocal left
        left -= to_topic == topic
        is_step = to_topic == topic and left == 0
        if is_step and step == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = put_message(store, to_topic, *more, **others)
        if is_step:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    MessagePut.put_message = put_or_die  # type: ignore[method-assign, assignment]
    return command.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
