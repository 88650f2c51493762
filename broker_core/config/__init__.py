"""The broker's configuration: RocketMQ's keys, units and defaults in frozen dataclasses.

A configuration file is Java properties text. Each key with an effect is a field of a section
(`broker`, `server`, `store`, `tls`), with its type, default, limits and description. A key of
RocketMQ that controls a feature this broker doesn't have is listed in `unsupported_keys`.
"""
