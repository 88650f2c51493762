from __future__ import annotations

from broker_core.listening.admission import Admission
from broker_core.listening.limits import ListenerLimits, StrangerConnectionLimits


def test_one_host_gets_no_more_connections_than_its_share_until_one_closes() -> None:
    admission = Admission(ListenerLimits(connections_per_host_max=2))

    assert admission.open("10.0.0.1:5", 1) is None
    assert admission.open("10.0.0.1:6", 2) is None
    assert admission.open("10.0.0.1:7", 3) == "more than 2 connections from one host"
    assert admission.open("10.0.0.2:5", 4) is None

    for _ in range(2):
        admission.close("10.0.0.1:7", is_signed_in=True)
    assert admission.open("10.0.0.1:8", 3) is None


def test_loopback_connections_share_no_limit_per_host_by_default() -> None:
    limits = ListenerLimits(connections_per_host_max=1)
    bounded = ListenerLimits(connections_per_host_max=1, is_loopback_bounded=True)
    free, counted = Admission(limits), Admission(bounded)

    assert [free.open("127.0.0.1:5", n) for n in (1, 2)] == [None, None]
    assert [counted.open("127.0.0.1:5", n) is None for n in (1, 2)] == [True, False]


def test_the_port_has_its_own_limit() -> None:
    admission = Admission(ListenerLimits(connections_max=1))

    assert admission.open("10.0.0.1:5", 1) is None
    assert admission.open("10.0.0.2:5", 2) == "more than 1 connections"


def test_a_connection_counts_as_a_strangers_until_it_authenticates() -> None:
    strangers = StrangerConnectionLimits(connections_max=3, connections_per_host_max=1)
    admission = Admission(ListenerLimits(strangers=strangers))

    assert admission.open("10.0.0.1:5", 1) is None
    refused = admission.open("10.0.0.1:6", 2)
    assert refused == "more than 1 connections from one host that have not signed in"
    admission.close("10.0.0.1:6", is_signed_in=False)

    admission.sign_in("10.0.0.1:5")
    assert admission.open("10.0.0.1:7", 2) is None
    assert admission.open("10.0.0.2:7", 3) is None
    assert admission.open("10.0.0.3:7", 4) is None
    assert admission.open("10.0.0.4:7", 5) == ("more than 3 connections that have not signed in")
