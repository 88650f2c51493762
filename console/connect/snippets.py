"""The shortest program that sends a message, in the languages of published clients."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.connect.addresses import ClientAddresses

TOPIC = "orders"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A program; `package` is the client's name in its registry."""

    name: str
    label: str
    package: str
    text: str


def snippets_for(addresses: ClientAddresses) -> list[Snippet]:
    """Return the snippets of clients that have a port to connect to."""
    name_servers = addresses.name_servers_text
    listed = ", ".join(map(json.dumps, addresses.name_servers))
    java = Snippet(
        "java",
        "Java 4.9",
        "rocketmq-client",
        f"""DefaultMQProducer producer = new DefaultMQProducer("my_producer");
producer.setNamesrvAddr("{name_servers}");
producer.start();
producer.send(new Message("{TOPIC}", "TagA", "hello".getBytes()));""",
    )
    go = Snippet(
        "go",
        "Go",
        "rocketmq-client-go/v2",
        f"""p, _ := rocketmq.NewProducer(
\tproducer.WithNameServer([]string{{{listed}}}))
p.Start()
p.SendSync(context.Background(),
\tprimitive.NewMessage("{TOPIC}", []byte("hello")))""",
    )
    if not addresses.grpc:
        return [java, go]
    endpoint = addresses.grpc[0]
    return [
        java,
        Snippet(
            "java5",
            "Java 5, gRPC",
            "rocketmq-client-java",
            f"""ClientServiceProvider provider = ClientServiceProvider.loadService();
Producer producer = provider.newProducerBuilder()
    .setClientConfiguration(ClientConfiguration.newBuilder()
        .setEndpoints("{endpoint}").enableSsl(false).build())
    .setTopics("{TOPIC}").build();
producer.send(provider.newMessageBuilder()
    .setTopic("{TOPIC}").setBody("hello".getBytes()).build());""",
        ),
        Snippet(
            "python",
            "Python, gRPC",
            "rocketmq-python-client",
            f"""from rocketmq import (
    ClientConfiguration, Credentials, Message, Producer)

configuration = ClientConfiguration("{endpoint}", Credentials())
producer = Producer(configuration, ("{TOPIC}",))
producer.startup()
message = Message()
message.topic, message.body = "{TOPIC}", b"hello"
producer.send(message)""",
        ),
        go,
        Snippet(
            "node",
            "Node.js, gRPC",
            "rocketmq-client-nodejs",
            f"""const {{ Producer }} = require("rocketmq-client-nodejs");
const producer = new Producer(
  {{ endpoints: "{endpoint}", namespace: "" }});
producer.startup().then(() =>
  producer.send({{ topic: "{TOPIC}", body: Buffer.from("hello") }}));""",
        ),
    ]
