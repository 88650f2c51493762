"""Replication status for tools and for the other brokers of a set.

Source: broker/processor/AdminBrokerProcessor.java getBrokerHaStatus, notifyMinBrokerIdChange,
store/ha/DefaultHAService.java getRuntimeInfo (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock
    from broker_core.ha.connection import SlaveConnection
    from broker_core.ha.master import HaMaster
    from broker_core.ha.master_ends import SlaveLag
    from broker_core.ha.metadata_sync import SyncState
    from broker_core.ha.role import Role
    from broker_core.ha.slave import HaSlave
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection


MS = 1000


class HaAdmin:
    """GET_BROKER_HA_STATUS, NOTIFY_MIN_BROKER_ID_CHANGE. Event loop only.

    `master_changed` is called with a broker name; `epoch` returns the latest epoch's number.
    """

    def __init__(
        self,
        role: Role,
        ha_master: HaMaster,
        ha_slave: HaSlave,
        metadata: SyncState,
        max_offset: Callable[[], int],
        master_changed: Callable[[str], None],
        clock: Clock,
        epoch: Callable[[], int],
    ) -> None:
        self._role = role
        self._ha_master = ha_master
        self._ha_slave = ha_slave
        self._metadata = metadata
        self._max_offset = max_offset
        self._master_changed = master_changed
        self._clock = clock
        self._epoch = epoch

    def behind_bytes(self) -> int:
        """Return how many bytes of the log the best slave lacks; the log's size without slaves."""
        slaves = self._ha_master.connections()
        return min((each.behind_bytes for each in slaves), default=self._max_offset())

    def behind_master(self) -> SlaveLag | None:
        """Return how far this slave is behind its master's last reported end; None if unknown."""
        if not self._role.is_slave:
            return None
        return self._metadata.ends.behind(self._clock.monotonic(), self._max_offset())

    def gauges(self) -> dict[str, int | None]:
        """Return a sample's replication gauges; with several slaves, those of the slowest slave."""
        found: dict[str, int | None] = {"epoch": self._epoch()}
        if self._role.is_slave:
            state, behind = self._ha_slave.state(), self.behind_master()
            silent_s = state.last_contact_seconds
            return found | {
                "following": int(state.state == "following"),
                "masterSilentMs": round(silent_s * MS) if silent_s >= 0 else None,
                "replicationBehind": None if behind is None else behind.lag_bytes,
                "replicationBehindMs": None if behind is None else round(behind.lag_seconds * MS),
            }
        slaves = self._ha_master.connections()
        found |= {
            "slaves": len(slaves),
            "slavesInSync": sum(each.is_in_sync for each in slaves),
        }
        if slaves:
            found |= {
                "replicationBehind": max(each.behind_bytes for each in slaves),
                "replicationBehindMs": round(max(each.behind_seconds for each in slaves) * MS),
            }
        return found

    def runtime_info(self) -> dict[str, str]:
        """Return the replication rows of GET_BROKER_RUNTIME_INFO, which RocketMQ doesn't have."""
        rows = {
            "brokerRole": self._role.broker_role,
            "brokerId": str(self._role.broker_id),
            "haEpoch": str(self._epoch()),
        }
        return rows | (self._slaves_rows() if not self._role.is_slave else self._masters_rows())

    def _slaves_rows(self) -> dict[str, str]:
        slaves = self._ha_master.connections()
        rows = {
            "haSlaveNums": str(len(slaves)),
            "haInSyncSlaveNums": str(sum(each.is_in_sync for each in slaves)),
        }
        for each in slaves:
            state = "in sync" if each.is_in_sync else "not in sync"
            rows[f"haSlave_{each.address}"] = (
                f"{state}, lag {each.behind_bytes} B {each.behind_seconds:.1f} s, "
                f"last contact {each.last_contact_seconds:.1f} s ago"
            )
        return rows

    def _masters_rows(self) -> dict[str, str]:
        state, behind = self._ha_slave.state(), self.behind_master()
        rows = {"haMasterAddress": state.master_address, "haState": state.state}
        if behind is not None:
            rows["haLag"] = f"{behind.lag_bytes} B {behind.lag_seconds:.1f} s"
        if state.last_contact_seconds >= 0:
            rows["haLastContact"] = f"{state.last_contact_seconds:.1f} s ago"
        if state.reason:
            rows["haReason"] = state.reason
        return rows

    def ha_status(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_HA_STATUS. Answers SUCCESS with HARuntimeInfo.

        RocketMQ's fields, and Trebuchet's own, which RocketMQ ignores: the role, a slave's delay,
        its last contact and the state of its replication.
        """
        is_slave = self._role.is_slave
        slaves = [] if is_slave else self._ha_master.connections()
        body = {
            "brokerId": self._role.broker_id,
            "brokerRole": self._role.broker_role,
            "haClientRuntimeInfo": self._client_info(is_slave=is_slave),
            "haConnectionInfo": [_connection_info(each) for each in slaves],
            "inSyncSlaveNums": sum(each.is_in_sync for each in slaves),
            "master": not is_slave,
            "masterCommitLogMaxOffset": 0 if is_slave else self._max_offset(),
            "metadata": self._metadata_info() if is_slave else {},
        }
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def _client_info(self, *, is_slave: bool) -> dict[str, Any]:
        state = self._ha_slave.state()
        last_read = 0
        if state.last_contact_seconds >= 0:
            last_read = self._clock.now_ms() - round(state.last_contact_seconds * MS)
        info = {
            "activated": is_slave and state.state == "following",
            "lastReadTimestamp": last_read,
            "lastWriteTimestamp": last_read,
            "masterAddr": state.master_address,
            "masterFlushOffset": 0,
            "maxOffset": self._max_offset() if is_slave else 0,
            "transferredByteInSecond": 0,
        }
        if is_slave:
            behind = self.behind_master()
            if behind is not None:
                info |= {
                    "behindMillis": round(behind.lag_seconds * MS),
                    "diff": behind.lag_bytes,
                }
            info |= {
                "failures": state.failures,
                "localAddr": state.local_address,
                "reason": state.reason,
                "state": state.state,
                "transferredBytes": state.transferred_bytes,
            }
        return info

    def _metadata_info(self) -> dict[str, Any]:
        metadata = self._metadata
        info: dict[str, Any] = {"failures": metadata.failures, "masterAddr": metadata.master_addr}
        if metadata.last_at is not None:
            ago = self._clock.monotonic() - metadata.last_at
            info["lastMillisAgo"] = round(ago * MS)
        return info

    def min_broker_id_changed(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """NOTIFY_MIN_BROKER_ID_CHANGE. Answers SUCCESS.

        A slave asks its name servers for its master. Differs: 5.x trusts the address in a notice.
        """
        self._master_changed(request.ext_fields.get("brokerName", ""))
        return request.answer(ResponseCode.SUCCESS)


def _connection_info(slave: SlaveConnection) -> dict[str, Any]:
    return {
        "addr": slave.address,
        "behindMillis": round(slave.behind_seconds * MS),
        "diff": slave.behind_bytes,
        "inSync": slave.is_in_sync,
        "lastContactMillisAgo": round(slave.last_contact_seconds * MS),
        "slaveAckOffset": max(0, slave.acknowledged_offset),
        "transferFromWhere": max(0, slave.transferred_offset),
        "transferredByteInSecond": slave.transfer_bytes_per_second,
    }
