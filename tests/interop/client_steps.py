"""The steps of the client programs, with the reason for each deliberate difference."""

from __future__ import annotations

from tests.support.outcome_page import CLIENTS, Step

JAVA = CLIENTS[:2]
JAVA_5 = (CLIENTS[1],)

NO_CALL = "the client has no such call"
ONLY_5 = "the client is older than this feature"
REFUSED_AT_PULL = (
    "ours refuses a pull with an expression that does not compile; the original delivers "
    "every message"
)
LOWER_BOUND = "5.x's rule: one past the last message, where 4.9 answers with the last one"
LITE_PULL = "5.3.3 pulls with request code 361 of 5.x, which ours serves and 4.9.7 does not"


def java(name: str, differs: str = "") -> Step:
    """Return a step of the Java clients only."""
    return Step(name, JAVA, NO_CALL, dict.fromkeys(JAVA, differs) if differs else {})


STEPS = [
    # Producers.
    Step("single"),
    java("a header of long names"),
    Step("batch"),
    Step("oneway"),
    Step("asynchronous"),
    java("a long property"),
    Step("ordered by queue"),
    Step("a write queue below 0"),
    Step("unique keys"),
    Step("compression"),
    Step("compression by LZ4", JAVA_5, ONLY_5),
    Step("compression by Zstandard", JAVA_5, ONLY_5),
    Step("topic creation by a client"),
    Step("automatic topic creation"),
    Step("topics that are refused"),
    Step("a topic without permission to write"),
    Step("a topic without permission to read"),
    Step("delayed messages"),
    Step("transactions"),
    java("transactions of a producer that is gone"),
    Step("request and reply"),
    # Consumers.
    Step("push by tags"),
    Step("push by SQL92"),
    java("an invalid SQL92 expression", REFUSED_AT_PULL),
    Step("pull"),
    java("a pull that waits"),
    java("a pull consumer's offsets"),
    Step("lite pull, subscribed", JAVA, NO_CALL, {CLIENTS[1]: LITE_PULL}),
    Step("lite pull, assigned", JAVA, NO_CALL, {CLIENTS[1]: LITE_PULL}),
    Step("orderly"),
    Step("broadcasting"),
    Step("rebalance"),
    Step("long polling"),
    Step("first start, from the first"),
    Step("first start, from the last"),
    Step("first start, from a time"),
    Step("first start, from the last of a young queue"),
    Step("a message that fails"),
    java("a message that always fails"),
    java("a message given back"),
    # A group that is queried, and a deleted one.
    Step("members of a group"),
    Step("running info"),
    Step("running info with stacks"),
    Step("direct consumption"),
    Step("consumer status"),
    Step("reset of a live group"),
    Step("a group that has gone"),
    Step("reset of an absent group"),
    # Queries.
    java("query by offset id"),
    java("query by key"),
    java("query by unique key"),
    java("offset by time"),
    java("offset by a time to come", LOWER_BOUND),
    java("consume queue"),
    Step("message trace"),
    # Ways to connect.
    Step("VIP port"),
    java("TLS"),
    Step("accounts"),
]
