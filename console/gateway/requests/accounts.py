"""Broker account requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from console.gateway.accounts import AccessDecision, BrokerAccess, BrokerAccount
from console.gateway.errors import RequestFailedError
from console.gateway.requests.call import body_of, call, reading
from console.gateway.requests.configuration import configuration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.gateway.accounts import AccessQuestion
    from console.gateway.requests.call import Ask


async def access(ask: Ask, address: str) -> BrokerAccess:
    """Return a broker's accounts and white addresses.

    RocketMQ brokers don't answer this while access control is off, so read its key first.
    """
    keys = {each.key: each.value for each in await configuration(ask, address)}
    if keys.get("aclEnable", "false").lower() != "true":
        return BrokerAccess(is_on=False)
    code = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
    answer = await call(ask, address, code, {"described": True})
    with reading(address, code):
        body = body_of(answer)
        accounts = tuple(account_of(each) for each in body.get("plainAccessConfigs") or ())
        if answer.ext_fields.get("described") != "true":
            white = tuple(str(each) for each in body.get("globalWhiteAddrs") or ())
            return BrokerAccess(True, accounts, white)
        by_file = {
            str(file): tuple(texts) for file, texts in body["globalWhiteAddrsByFile"].items()
        }
        own = by_file.pop(str(body["file"]), ())
        others = {file: texts for file, texts in by_file.items() if texts}
    return BrokerAccess(True, accounts, own, others, is_described=True)


def account_of(entry: Mapping[str, Any]) -> BrokerAccount:
    """Return an account, dropping any secret that a RocketMQ broker reports."""
    return BrokerAccount(
        access_key=str(entry["accessKey"]),
        is_admin=bool(entry.get("admin")),
        default_topic_perm=word_of(entry.get("defaultTopicPerm")),
        default_group_perm=word_of(entry.get("defaultGroupPerm")),
        topic_perms=perms_of(entry.get("topicPerms")),
        group_perms=perms_of(entry.get("groupPerms")),
        white_address=str(entry.get("whiteRemoteAddress") or ""),
        is_broker=bool(entry.get("broker")),
        requires_fresh_signature=bool(entry.get("requireFreshSignature")),
        file=str(entry.get("file") or ""),
    )


def word_of(text: object) -> str:
    """Return a permission for display; brokers treat unknown values as DENY."""
    word = str(text or "DENY").strip()
    return "PUB|SUB" if word == "SUB|PUB" else word if word in {"PUB", "SUB", "PUB|SUB"} else "DENY"


def perms_of(lines: Iterable[str] | None) -> dict[str, str]:
    pairs = (str(line).partition("=") for line in lines or ())
    return {name.strip(): word_of(word) for name, _equals, word in pairs}


async def save(ask: Ask, address: str, account: BrokerAccount, secret: str | None) -> None:
    """Create or replace an account; without a secret, a Trebuchet broker keeps the current one."""
    fields: dict[str, object] = {
        "accessKey": account.access_key,
        "admin": account.is_admin,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "whole": True,
    }
    more = {
        "secretKey": secret,
        "whiteRemoteAddress": account.white_address,
        "topicPerms": listed(account.topic_perms),
        "groupPerms": listed(account.group_perms),
    }
    fields |= {key: value for key, value in more.items() if value}
    try:
        await call(ask, address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields)
    except RequestFailedError as error:
        if secret is None:
            raise
        # RocketMQ brokers repeat the secret when they refuse.
        text = error.remark.replace(secret, "…")
        raise RequestFailedError(address, error.code, text) from None


def listed(perms: Mapping[str, str]) -> str:
    return ",".join(f"{name}={word}" for name, word in perms.items())


async def delete(ask: Ask, address: str, access_key: str) -> None:
    await call(ask, address, RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key})


async def set_white_addresses(ask: Ask, address: str, addresses: Iterable[str]) -> None:
    fields = {"globalWhiteAddrs": ",".join(addresses)}
    await call(ask, address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, fields)


async def explain(ask: Ask, address: str, question: AccessQuestion) -> AccessDecision:
    """Ask a Trebuchet broker for its decision; RocketMQ doesn't support the request."""
    fields = {"address": question.address, "action": question.action}
    more = {
        "accessKey": question.access_key,
        "topic": question.topic,
        "group": question.group,
    }
    fields |= {key: value for key, value in more.items() if value}
    code = RequestCode.EXPLAIN_ACCESS
    answer = await call(ask, address, code, fields)
    with reading(address, code):
        body = java_json.decode(answer.body)
        return AccessDecision(
            is_allowed=bool(body["allowed"]),
            reason=str(body["reason"]),
            rule=str(body["rule"]),
            needs_fresh_signature=bool(body["fresh"]),
            validators=tuple(str(each) for each in body["validators"]),
        )
