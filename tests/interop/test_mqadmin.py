"""All commands of mqadmin 4.9.7, compared between our broker and the real one.

The output is in outcomes/mqadmin.md, with the verdict. The suite fails if that page is stale, if
an outcome differs without a reason in mqadmin_cases.py, or if one with a reason doesn't differ.

    TREBUCHET_WRITE_OUTCOMES=1 pytest tests/interop/test_mqadmin.py    writes the page
"""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import require_java
from tests.interop.mqadmin_cases import CASES, Case
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.first_start import topics_of
from tests.support.mqadmin import LiveClients, MqAdmin, compile_programs, normalised, shaped
from tests.support.outcome_page import SeenOnceWarning
from tests.support.peer import Peer
from tests.support.waiting import until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(1_500),
    pytest.mark.filterwarnings("always::tests.support.outcome_page.SeenOnceWarning"),
]

VERSION = "4.9.7"
PAGE = Path(__file__).resolve().parent / "outcomes" / "mqadmin.md"
WRITE_VARIABLE = "TREBUCHET_WRITE_OUTCOMES"
TOPIC = "orders"
MESSAGES = 10
COMMANDS = 57
"""The number of commands of MQAdminStartup in this version."""

PROGRESS = ("consumerProgress", "-g", "live-consumer")
RETRY_TOPIC = "%RETRY%live-consumer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"

Outcomes = dict[str, str]
Both = tuple[Outcomes, Outcomes]


def client_of(mqadmin: MqAdmin) -> str:
    """Return the ID of the consumer; its heartbeat comes late on a machine that stalls."""
    found: list[str] = []

    def is_connected() -> bool:
        words = mqadmin.run("consumerConnection", "-g", "live-consumer").text.split()
        found.extend(word for word in words if word.endswith("@live"))
        return bool(found)

    until(is_connected, "the consumer to be registered", every_s=1.0)
    return found[0]


def run_all(port: int, namesrv: str, jars: str, home: Path) -> Outcomes:
    """Run every case with one deployment."""
    until(lambda: HALF_TOPIC in topics_of(port), f"{HALF_TOPIC} of {namesrv}")
    raw_remoting.create_topic(port, TOPIC, queues=2)
    outcomes = {}
    with (
        LiveClients(jars, home, namesrv, TOPIC, "broker-a", MESSAGES) as live,
        MqAdmin(jars, home, namesrv) as mqadmin,
    ):
        client = client_of(mqadmin)
        names = {
            "uniq": live.ids["k1"][0],
            "offset_id": live.ids["k1"][1],
            "broker": f"127.0.0.1:{port}",
            "client": client,
            "home": str(home),
        }
        for case in CASES:
            if case.command[:2] == ("consumerProgress", "-g"):
                # A client announces its retry queue some 20 s after its start.
                until(
                    lambda: RETRY_TOPIC in mqadmin.run(*PROGRESS).text,
                    "the client's offset in its retry topic",
                    seconds=180.0,
                )
            command = [part.format(**names) for part in case.command]
            outcome = mqadmin.run(*command, seconds=case.seconds)
            text = shaped(
                normalised(outcome.text, {str(home): "HOME", f"127.0.0.1:{port}": "BROKER"}),
                case.shape,
            )
            outcomes[case.name] = text + ("\n(it goes on)" if outcome.is_running else "")
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Our outcomes, and the real broker's; for differing cases, those of a second run.

    The machine may stall for seconds, so only a repeated difference counts.
    """
    require_java()
    root = tmp_path_factory.mktemp("mqadmin")
    jars = compile_programs(VERSION, root)
    ours, theirs = run_both(jars, root / "first")
    wrong = [case.name for case in CASES if is_wrong(case, (ours, theirs))]
    if wrong:
        warnings.warn(
            f"repeating all cases because these differed: {', '.join(wrong)}",
            SeenOnceWarning,
            stacklevel=1,
        )
        again = run_both(jars, root / "second")
        ours |= {name: again[0][name] for name in wrong}
        theirs |= {name: again[1][name] for name in wrong}
    return ours, theirs


def is_wrong(case: Case, both: Both) -> bool:
    """Return whether an outcome differs without a reason, or doesn't differ despite one."""
    ours, theirs = (each[case.name] for each in both)
    return (ours != theirs) != bool(case.differs)


def run_both(jars: str, root: Path) -> Both:
    root.mkdir()
    # RocketMQ creates RMQ_SYS_TRANS_HALF_TOPIC at its first transaction check.
    keys = {"mappedFileSizeCommitLog": 64 << 20, "transactionCheckInterval": 1_000}
    ours = BrokerProcess(root / "ours", **keys)
    (root / "ours-home").mkdir()
    (root / "theirs-home").mkdir()
    with Peer(VERSION, root / "theirs", **keys) as theirs, ThreadPoolExecutor(2) as both:
        ours.start()
        try:
            one = both.submit(run_all, ours.port, ours.namesrv, jars, root / "ours-home")
            other = both.submit(run_all, theirs.port, theirs.namesrv, jars, root / "theirs-home")
            return one.result(), other.result()
        finally:
            ours.stop()


def page_of(ours: Outcomes, theirs: Outcomes) -> str:
    same = sum(ours[case.name] == theirs[case.name] for case in CASES)
    parts = [
        f"# mqadmin {VERSION}: our broker and the real one\n",
        "Written by `tests/interop/test_mqadmin.py` from a run of both: "
        f"{len(CASES)} command lines, {same} with the same outcome, {len(CASES) - same} that "
        "differ on purpose.\n",
        "| case | outcome |\n| --- | --- |",
    ]
    for case in CASES:
        is_same = ours[case.name] == theirs[case.name]
        parts.append(f"| {case.name} | {'same' if is_same else f'differs: {case.differs}'} |")
    for case in CASES:
        parts.append(f"\n## {case.name}\n\n`mqadmin {' '.join(case.command)}`\n")
        if ours[case.name] == theirs[case.name]:
            parts.append(f"```\n{ours[case.name]}\n```")
        else:
            parts.append(
                f"theirs:\n```\n{theirs[case.name]}\n```\nours:\n```\n{ours[case.name]}\n```"
            )
    return "\n".join(parts) + "\n"


def test_every_command_is_run() -> None:
    assert len({case.command[0] for case in CASES}) == COMMANDS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_outcome_equals_the_real_ones(outcomes: Both, case: Case) -> None:
    ours, theirs = (each[case.name] for each in outcomes)

    if case.differs:
        assert ours != theirs, "it no longer differs; remove the reason"
    else:
        assert ours == theirs


def test_mqadmin_did_something(outcomes: Both) -> None:
    """Two programs that both fail agree on everything."""
    for each in outcomes:
        assert TOPIC in each["topicList"]
        assert "body" in each["printMsg"]
        assert "create topic to BROKER success" in each["updateTopic"]
        assert sum("Exception" in text for text in each.values()) < len(each) / 3


def test_the_page_of_outcomes_is_current(outcomes: Both) -> None:
    page = page_of(*outcomes)
    if os.environ.get(WRITE_VARIABLE):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == page, f"stale; {WRITE_VARIABLE}=1 writes it anew"
