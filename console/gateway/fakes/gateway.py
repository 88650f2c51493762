"""The gateway that test settings name: all subjects over one FakeBroker."""

from __future__ import annotations

from console.gateway.fakes.accounts import FakeAccounts
from console.gateway.fakes.broker import FakeBroker
from console.gateway.fakes.browse import FakeBrowse
from console.gateway.fakes.cluster import FakeCluster
from console.gateway.fakes.files import FakeFiles
from console.gateway.fakes.groups import FakeGroups
from console.gateway.fakes.messages import FakeMessages
from console.gateway.fakes.naming import FakeNaming
from console.gateway.fakes.offsets import FakeOffsets
from console.gateway.fakes.recorder import FakeRecorder
from console.gateway.fakes.repair import FakeRepair
from console.gateway.fakes.samples import FakeSamples
from console.gateway.fakes.sending import FakeSending
from console.gateway.fakes.topics import FakeTopics
from console.gateway.fakes.watch import FakeWatches
from console.gateway.ports import Gateway


def fake_gateway(broker: FakeBroker | None = None) -> Gateway:
    """Return a gateway to this broker, or to a new broker without topics."""
    broker = broker or FakeBroker()
    return Gateway(
        cluster=FakeCluster(broker),
        topics=FakeTopics(broker),
        groups=FakeGroups(broker),
        offsets=FakeOffsets(broker),
        files=FakeFiles(broker),
        browse=FakeBrowse(broker),
        repair=FakeRepair(broker),
        samples=FakeSamples(broker),
        sending=FakeSending(broker),
        messages=FakeMessages(broker),
        recorder=FakeRecorder(broker),
        watch=FakeWatches(broker),
        accounts=FakeAccounts(broker),
        naming=FakeNaming(broker),
    )
