"""The broker's configuration: RocketMQ's keys, units and defaults in frozen dataclasses.

A configuration file is Java properties text. Each key with an effect is one field of a section
(`broker`, `server`, `store`, `tls`), and everything there is to know of it stands at the field. A
key of the original that steers something this broker does not have stands in `unserved`.
"""
