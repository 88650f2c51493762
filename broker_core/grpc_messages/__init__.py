"""The messages of RocketMQ's gRPC protocol (apache.rocketmq.v2, 2.1.2) as bytes and as objects."""
