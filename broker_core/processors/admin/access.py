"""Administration of accounts.

Source: broker/processor/AdminBrokerProcessor.java (4.9.7). Differs: no answer contains a secret
key, not even that of GET_BROKER_CLUSTER_ACL_CONFIG; requests may name only known files. RocketMQ
leaves some of these unanswered without access control. Trebuchet's own fields: with `whole`, an
update keeps the account's secret and resets every value that isn't given; with `described`,
GET_BROKER_CLUSTER_ACL_CONFIG also lists the files. EXPLAIN_ACCESS exists only in Trebuchet.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.access.account import text_of
from broker_core.access.address_rule import parts_of
from broker_core.access.explanation import parse_need
from broker_core.config.lists import PLAIN_ACL, names_of
from broker_core.errors import RequestRefusedError
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields
from broker_core.protocol.signature import ACCESS_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.access.acl_files import AccessState, AclFiles
    from broker_core.access.authorizer import Authorizer
    from broker_core.config.broker import BrokerConfig
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

logger = logging.getLogger(__name__)

COMMA = re.compile(r",(?![^{]*\})")
"""Splits addresses, but not within 10.1.2.{3,4}; RocketMQ splits there too and rejects both parts.
"""
WHOLE, DESCRIBED = "whole", "described"
SHOWN_TEXTS = ("accessKey", "defaultGroupPerm", "defaultTopicPerm", "whiteRemoteAddress")


class AccessAdmin:
    """UPDATE_AND_CREATE_ACL_CONFIG, DELETE_ACL_CONFIG, GET_BROKER_CLUSTER_ACL_INFO,
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, GET_BROKER_CLUSTER_ACL_CONFIG, EXPLAIN_ACCESS (Trebuchet
    only). Event loop only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_addr: str,
        files: AclFiles | None,
        authorizer: Authorizer | None,
    ) -> None:
        self._config = config
        self._broker_addr = broker_addr
        self._files = files
        self._authorizer = authorizer

    def update_account(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """UPDATE_AND_CREATE_ACL_CONFIG. Answers SUCCESS or UPDATE_AND_CREATE_ACL_CONFIG_FAILED."""
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        header = request.ext_fields
        wanted: dict[str, Any] = {
            "accessKey": header.get("accessKey"),
            "secretKey": header.get("secretKey"),
            "whiteRemoteAddress": header.get("whiteRemoteAddress"),
            "admin": fields.boolean(header, "admin"),
            "defaultTopicPerm": header.get("defaultTopicPerm"),
            "defaultGroupPerm": header.get("defaultGroupPerm"),
            "topicPerms": _split(header, "topicPerms"),
            "groupPerms": _split(header, "groupPerms"),
        }
        try:
            self._acl(failed).put_account(wanted, is_whole=fields.boolean(header, WHOLE))
        except (ValueError, OSError) as error:
            raise RequestRefusedError(failed, _reason(error)) from error
        _log(request, connection, f"update of {wanted['accessKey']}")
        return request.answer(ResponseCode.SUCCESS)

    def delete_account(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """DELETE_ACL_CONFIG. Answers SUCCESS or DELETE_ACL_CONFIG_FAILED."""
        failed = ResponseCode.DELETE_ACL_CONFIG_FAILED
        access_key = fields.text(request.ext_fields, "accessKey")
        try:
            deleted = self._acl(failed).delete_account(access_key)
        except (ValueError, OSError) as error:
            raise RequestRefusedError(failed, _reason(error)) from error
        if not deleted:
            raise RequestRefusedError(
                failed,
                f"The accesskey[{access_key}] corresponding to accessConfig has been deleted "
                "failed.",
            )
        _log(request, connection, f"deletion of {access_key}")
        return request.answer(ResponseCode.SUCCESS)

    def update_white_addresses(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG. Answers SUCCESS or
        UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED.
        """
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        header = request.ext_fields
        text, path = fields.text(header, "globalWhiteAddrs"), header.get("aclFileFullPath")
        addresses = [line for each in COMMA.split(text) if (line := each.strip())]
        try:
            self._acl(failed).set_global_white_addresses(addresses, Path(path) if path else None)
        except (ValueError, OSError) as error:
            raise RequestRefusedError(failed, _reason(error)) from error
        _log(request, connection, "the addresses that may do everything")
        return request.answer(ResponseCode.SUCCESS)

    def versions(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_CLUSTER_ACL_INFO. Answers SUCCESS with the file versions."""
        files = self._acl(ResponseCode.SYSTEM_ERROR)
        versions = {
            str(path): msgspec.to_builtins(version)
            for path, version in files.state.versions.items()
        }
        return request.answer(
            ResponseCode.SUCCESS,
            None,
            {
                "version": java_json.encode(versions[str(files.path)]).decode(),
                "allAclFileVersion": java_json.encode(versions).decode(),
                "brokerName": self._config.broker_name,
                "brokerAddr": self._broker_addr,
                "clusterName": self._config.broker_cluster_name,
            },
        )

    def accounts(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_CLUSTER_ACL_CONFIG. Answers SUCCESS with all accounts but no secrets."""
        files = self._acl(ResponseCode.SYSTEM_ERROR)
        state = files.state
        is_described = fields.boolean(request.ext_fields, DESCRIBED)
        body: dict[str, Any] = {
            "globalWhiteAddrs": list(state.global_white_texts),
            "plainAccessConfigs": [
                _shown(entry) | (_trebuchet_fields(entry, state) if is_described else {})
                for entry in state.entries
            ],
        }
        if is_described:
            body["file"] = str(files.path)
            body["globalWhiteAddrsByFile"] = {
                str(path): list(texts) for path, texts in state.global_white_of.items()
            }
        answer = {DESCRIBED: "true"} if is_described else {}
        return request.answer(ResponseCode.SUCCESS, None, answer, body=java_json.encode(body))

    def explain(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """EXPLAIN_ACCESS: the answer that a correctly signed request would get, and the rule behind
        it.

        Fields: accessKey (empty for no account), address, action (PUB, SUB, ADMIN), topic or group.
        Answers SUCCESS, or SYSTEM_ERROR. All validators must allow a request, and extensions can't
        be queried without one: `validators` names them.
        """
        self._acl(ResponseCode.SYSTEM_ERROR)
        assert self._authorizer is not None  # there are accounts
        header = request.ext_fields
        try:
            need = parse_need(header.get("action", ""), header.get("topic"), header.get("group"))
        except ValueError as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        address = fields.text(header, "address")
        if not parts_of(address):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"{address[:64]!r} is not an address such as 10.1.2.3"
            )
        decision = self._authorizer.explain(header.get("accessKey"), address, need)
        others = [each for each in names_of(self._config.access_validators) if each != PLAIN_ACL]
        body = {**dataclasses.asdict(decision), "validators": others}
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def _acl(self, code: ResponseCode) -> AclFiles:
        if self._files is None:
            if self._config.acl_enable:
                remark = "this broker has no accounts: accessValidators doesn't include plain_acl"
            else:
                remark = "access control is off; aclEnable=true turns it on"
            raise RequestRefusedError(code, remark)
        return self._files


def _log(request: RemotingCommand, connection: Connection, change: str) -> None:
    """Log who changed the accounts; AclFiles logs the changes."""
    logger.warning(
        "accounts changed by request changes=%s access_key=%s peer=%s",
        change,
        request.ext_fields.get(ACCESS_KEY),
        connection.remote_address,
    )


def _shown(entry: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {"admin": str(entry.get("admin")).lower() == "true", "secretKey": ""}
    for key in SHOWN_TEXTS:
        if entry.get(key) is not None:
            table[key] = text_of(entry[key])
    for key in ("groupPerms", "topicPerms"):
        if entry.get(key) is not None:
            table[key] = [str(line) for line in entry[key]]
    return dict(sorted(table.items()))


def _trebuchet_fields(entry: Mapping[str, Any], state: AccessState) -> dict[str, Any]:
    """Return the account fields that only Trebuchet's console reads."""
    account = state.accounts[text_of(entry.get("accessKey")) or ""]
    return {
        "broker": account.is_broker,
        "requireFreshSignature": account.requires_fresh_signature,
        "file": str(state.owners[account.access_key]),
    }


def _split(header: Mapping[str, str], key: str) -> list[str] | None:
    text = header.get(key)
    return None if text is None else text.split(",")


def _reason(error: ValueError | OSError) -> str:
    if isinstance(error, OSError):
        return f"the account file cannot be written: {error.strerror}"
    return str(error)
