"""Addresses and snippets for clients, on pages that have nothing to show yet; a broker's ports."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.connect.addresses import ClientAddresses
from console.connect.snippets import snippets_for
from console.gateway.configuration import BrokerKey
from console.gateway.errors import BrokerDownError
from console.gateway.fakes.broker import ADDRESS
from console.gateway.fakes.cluster import FakeCluster
from console.gateway.listeners import (
    DISABLED,
    ENFORCING,
    GRPC,
    METRICS,
    PERMISSIVE,
    REMOTING,
    REPLICATION,
    Listener,
    listeners_of,
)
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from console.gateway.answers import BrokerNode

pytestmark = pytest.mark.django_db

GRPC_ADDRESS = "127.0.0.1:8081"
EMPTY_PAGES = ("overview:index", "clients:producers", "groups:list", "tracing:river")
WITH_SNIPPETS = EMPTY_PAGES[:2]


def keys_of(**values: str) -> list[BrokerKey]:
    return [BrokerKey(key.replace("__", "."), value) for key, value in values.items()]


@pytest.fixture
def grpc(brokers):
    """The fake broker with a gRPC port."""
    for each in keys_of(grpcListenPort="8081", tls__server__mode="permissive"):
        brokers.keys[each.key] = each
    return brokers


def test_each_open_port_is_a_listener_with_its_tls_mode(brokers) -> None:
    keys = keys_of(
        listenPort="10911",
        grpcListenPort="8081",
        haListenPort="10912",
        metricsListenPort="0",
        tls__server__mode="permissive",
    )

    assert listeners_of(brokers.node, keys) == (
        Listener(REMOTING, "listenPort", ADDRESS, PERMISSIVE),
        Listener(GRPC, "grpcListenPort", GRPC_ADDRESS, PERMISSIVE),
        Listener(REPLICATION, "haListenPort", "127.0.0.1:10912", DISABLED),
    )


def test_addresses_that_the_configuration_sets_come_first(brokers) -> None:
    node = replace(brokers.node, address="10.0.0.5:20911")
    keys = keys_of(
        listenPort="10911",
        grpcListenPort="8081",
        grpcAdvertisedEndpoint="mq.example.org:443",
        haListenPort="10912",
        haTls="true",
        metricsListenPort="5557",
        metricsListenAddress="127.0.0.1",
    )

    found = {each.kind: (each.address, each.tls) for each in listeners_of(node, keys)}

    assert found == {
        REMOTING: ("10.0.0.5:20911", ""),
        GRPC: ("mq.example.org:443", ""),
        REPLICATION: ("10.0.0.5:10912", ENFORCING),
        METRICS: ("127.0.0.1:5557", DISABLED),
    }


def test_a_broker_of_rocketmq_has_no_grpc_port(brokers) -> None:
    assert [each.kind for each in listeners_of(brokers.node, keys_of(listenPort="10911"))] == [
        REMOTING
    ]


@pytest.mark.parametrize("page", EMPTY_PAGES)
def test_an_empty_page_names_the_addresses_of_both_protocols(actors, grpc, settings, page) -> None:
    html = unescape(actors.reader.get(reverse(page)).content.decode())

    assert settings.TREBUCHET_NAMESRV[0] in html
    assert GRPC_ADDRESS in html


@pytest.mark.parametrize("page", WITH_SNIPPETS)
def test_an_empty_page_has_a_snippet_for_each_client(actors, grpc, page) -> None:
    html = unescape(actors.reader.get(reverse(page)).content.decode())

    assert re.findall(r'id="snippet-(\w+)"', html) == ["java", "java5", "python", "go", "node"]
    assert f'.setEndpoints("{GRPC_ADDRESS}")' in html
    assert f'ClientConfiguration("{GRPC_ADDRESS}", Credentials())' in html
    assert f'endpoints: "{GRPC_ADDRESS}", namespace: ""' in html


@pytest.mark.parametrize("page", WITH_SNIPPETS)
def test_without_a_grpc_port_an_empty_page_says_how_to_open_one(actors, brokers, page) -> None:
    html = unescape(actors.reader.get(reverse(page)).content.decode())

    assert re.findall(r'id="snippet-(\w+)"', html) == ["java", "go"]
    assert "No gRPC port. Set grpcListenPort=8081 in the broker's configuration" in html


def test_a_broker_that_does_not_respond_is_not_a_broker_without_a_port(actors, grpc) -> None:
    grpc.silent = BrokerDownError(ADDRESS, "timed out")

    html = unescape(actors.reader.get(reverse("tracing:river")).content.decode())

    assert "Unknown because the broker isn't responding." in html
    assert "No gRPC port." not in html


def test_a_page_in_chinese_names_the_grpc_address_too(actors, grpc) -> None:
    page = actors.reader.get(reverse("overview:index"), headers={"accept-language": "zh-hans"})

    assert "gRPC 客户端" in page.content.decode()


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("permissive", "TLS or cleartext"),
        ("enforcing", "TLS only"),
        ("disabled", "Cleartext only"),
        ("", "The broker didn't report this."),
    ],
)
def test_a_broker_s_page_lists_its_ports_with_their_encryption(actors, grpc, mode, words) -> None:
    grpc.keys["tls.server.mode"] = BrokerKey("tls.server.mode", mode)

    page = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0])).content.decode()

    table = unescape(page[page.index('id="listeners"') :])
    rows = table[: table.index("</table>")].split("<tr>")
    (row,) = [each for each in rows if "grpcListenPort" in each]
    assert GRPC_ADDRESS in row
    assert words in row


def test_a_broker_s_page_asks_only_that_broker_for_its_ports(actors, grpc, monkeypatch) -> None:
    asked: list[str] = []
    answer = FakeCluster.configuration

    def configuration(cluster: FakeCluster, node: BrokerNode) -> tuple[BrokerKey, ...]:
        asked.append(node.address)
        return answer(cluster, node)

    def listeners(_cluster: FakeCluster) -> None:
        asked.append("all brokers")

    monkeypatch.setattr(FakeCluster, "configuration", configuration)
    monkeypatch.setattr(FakeCluster, "listeners", listeners)

    page = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0])).content.decode()
    grpc.silent = BrokerDownError(ADDRESS, "timed out")
    silent = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0])).content.decode()

    assert 'id="listeners"' in page
    assert 'id="listeners"' not in silent
    assert asked == [ADDRESS]


def test_the_readme_s_settings_are_those_of_the_snippets() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = re.findall(r"^\| [^|]+ \| `([^`]+127\.0\.0\.1[^`]+)` \|$", readme, re.MULTILINE)
    addresses = ClientAddresses(("127.0.0.1:9876",), (GRPC_ADDRESS,))
    programs = [re.sub(r"\s+", "", each.text) for each in snippets_for(addresses)]

    assert len(shown) == len(programs) == 5
    for setting in shown:
        words = re.sub(r"\s+", "", setting)
        assert any(words in program for program in programs), setting


def test_the_snippets_use_the_packages_and_names_of_the_tested_clients() -> None:
    clients = ROOT / "tests" / "interop"
    java = (clients / "grpc_clients" / "GrpcClient.java").read_text()
    node = (clients / "grpc_clients" / "grpc_client.js").read_text()
    python = (ROOT / "tests" / "support" / "python5_client.py").read_text()
    go = "".join(path.read_text() for path in (clients / "go").glob("*.go"))
    tested = {"java5": java, "node": node, "python": python, "go": go}
    names = {
        "java5": ("newProducerBuilder", "setClientConfiguration", "enableSsl", "setTopics"),
        "node": ("rocketmq-client-nodejs", "startup()", "Buffer.from"),
        "python": ("ClientConfiguration", "Credentials", "startup()"),
        "go": ("rocketmq.NewProducer", "primitive.NewMessage", "SendSync"),
    }
    programs = snippets_for(ClientAddresses(("127.0.0.1:9876",), (GRPC_ADDRESS,)))
    snippets = {each.name: each.text for each in programs}

    missing = [
        (name, word)
        for name, words in names.items()
        for word in words
        if word not in tested[name] or word not in snippets[name]
    ]

    assert missing == []
