"""The gateway named in the settings: all subjects over the remoting protocol."""

from __future__ import annotations

from django.conf import settings

from console.gateway.ports import Gateway
from console.gateway.remote.accounts import RemoteAccounts
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.browse import RemoteBrowse
from console.gateway.remote.cluster import RemoteCluster
from console.gateway.remote.files import RemoteFiles
from console.gateway.remote.groups import RemoteGroups
from console.gateway.remote.messages import RemoteMessages
from console.gateway.remote.naming import RemoteNaming
from console.gateway.remote.offsets import RemoteOffsets
from console.gateway.remote.recorder import RemoteRecorder
from console.gateway.remote.repair import RemoteRepair
from console.gateway.remote.samples import RemoteSamples
from console.gateway.remote.sending import RemoteSending
from console.gateway.remote.topics import RemoteTopics
from console.gateway.remote.watch import RemoteWatches


def remote_gateway() -> Gateway:
    """Return the gateway for the name servers in the settings; it connects on first use."""
    return gateway_to(RemoteBrokers(settings.TREBUCHET_NAMESRV, settings.GATEWAY_TIMEOUT_S))


def gateway_to(brokers: RemoteBrokers) -> Gateway:
    """Return a gateway whose blocking parts share the connections of `brokers`."""
    return Gateway(
        cluster=RemoteCluster(brokers),
        topics=RemoteTopics(brokers),
        groups=RemoteGroups(brokers),
        offsets=RemoteOffsets(brokers),
        files=RemoteFiles(brokers),
        browse=RemoteBrowse(brokers),
        repair=RemoteRepair(brokers),
        samples=RemoteSamples(brokers),
        sending=RemoteSending(brokers),
        messages=RemoteMessages(brokers.name_servers, brokers.timeout_s),
        recorder=RemoteRecorder(brokers),
        watch=RemoteWatches(brokers.timeout_s),
        accounts=RemoteAccounts(brokers),
        naming=RemoteNaming(brokers),
    )
