"""A RocketMQ cluster over TCP: its topics and queues, their offsets and messages. No Spark."""
