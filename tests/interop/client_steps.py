"""The steps of the client programs, with the reason for each deliberate difference."""

from __future__ import annotations

from tests.support.outcome_page import CLIENTS, Step

JAVA = CLIENTS[:2]
JAVA_5 = (CLIENTS[1],)

NO_CALL = "the client has no such call"
ONLY_5 = "the client is older than this feature"
REFUSED_AT_PULL = (
    "Trebuchet rejects a pull whose expression doesn't compile; RocketMQ delivers every message"
)
LOWER_BOUND = (
    "Trebuchet returns the offset after the last message, like 5.x; 4.9 returns the last message's"
)
LITE_PULL = "5.3.3 pulls with 5.x's request code 361, which Trebuchet supports and 4.9.7 doesn't"


def java(name: str, differs: str = "") -> Step:
    """Return a step of the Java clients only."""
    return Step(name, JAVA, NO_CALL, dict.fromkeys(JAVA, differs) if differs else {})


STEPS = [
    # Producers.
    Step("single"),
    java("a header with long names"),
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
    Step("rejected topics"),
    Step("a topic without write permission"),
    Step("a topic without read permission"),
    Step("delayed messages"),
    Step("transactions"),
    java("transactions of a lost producer"),
    Step("request and reply"),
    # Consumers.
    Step("push by tags"),
    Step("push by SQL92"),
    java("an invalid SQL92 expression", REFUSED_AT_PULL),
    Step("pull"),
    java("a waiting pull"),
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
    Step("a failing message"),
    java("an always failing message"),
    java("a returned message"),
    # A group that is queried, and a deleted one.
    Step("members of a group"),
    Step("running info"),
    Step("running info with stacks"),
    Step("direct consumption"),
    Step("consumer status"),
    Step("reset of a live group"),
    Step("a group whose members left"),
    Step("reset of an absent group"),
    # Queries.
    java("query by offset id"),
    java("query by key"),
    java("query by unique key"),
    java("offset by time"),
    java("offset by a future time", LOWER_BOUND),
    java("consume queue"),
    Step("message trace"),
    # Ways to connect.
    Step("VIP port"),
    java("TLS"),
    Step("accounts"),
]
