"""Requests to read configuration files, and for changes that only Trebuchet supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.errors import SYSTEM_ERROR, GatewayError, RequestFailedError
from console.gateway.files import ConfigFile
from console.gateway.requests.call import body_of, call, reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.files import GroupFilter
    from console.gateway.requests.call import Ask

REFUSALS = frozenset({int(ResponseCode.SUBSCRIPTION_PARSE_FAILED), SYSTEM_ERROR})

CODES = {
    ConfigFile.TOPICS: RequestCode.GET_ALL_TOPIC_CONFIG,
    ConfigFile.GROUPS: RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    ConfigFile.OFFSETS: RequestCode.GET_ALL_CONSUMER_OFFSET,
    ConfigFile.DELAYS: RequestCode.GET_ALL_DELAY_OFFSET,
    ConfigFile.FILTERS: RequestCode.GET_ALL_CONSUMER_FILTER,
}


async def config_file(ask: Ask, address: str, file: ConfigFile) -> dict[str, Any] | None:
    """Return a file as the broker has it in memory; None: not available."""
    code = CODES[file]
    try:
        answer = await call(ask, address, code)
    except RequestFailedError as error:
        # RocketMQ has no filter request, and reports an empty offset table as an error without a
        # remark.
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if error.code == SYSTEM_ERROR and not error.remark:
            return {file.table: {}}
        raise
    with reading(address, code):
        document = body_of(answer)
        if not isinstance(document, dict) or not isinstance(document.get(file.table), dict):
            raise TypeError(f"there is no {file.table}")
        return document


async def move_delay(ask: Ask, address: str, level: int, offset: int) -> None:
    """Move a delay level to an offset."""
    await changed(ask, address, RequestCode.UPDATE_DELAY_OFFSET, {"level": level, "offset": offset})


async def check_filter(ask: Ask, address: str, wanted: GroupFilter) -> str:
    """Return the broker's error for a filter expression, or "" if it is valid."""
    body = {
        "clientId": "",
        "group": wanted.group,
        "subscriptionData": {
            "topic": wanted.topic,
            "subString": wanted.expression,
            "expressionType": wanted.expression_type,
        },
    }
    code = RequestCode.CHECK_CLIENT_CONFIG
    answer = await call(ask, address, code, body=java_json.encode(body), also=REFUSALS)
    if answer.code == ResponseCode.SUCCESS:
        return ""
    return (answer.remark or f"code {answer.code}").removeprefix("Invalid MessageSelector. ")


async def save_filter(ask: Ask, address: str, wanted: GroupFilter) -> None:
    """Create or replace a group's filter."""
    body = {
        "consumerGroup": wanted.group,
        "topic": wanted.topic,
        "expressionType": wanted.expression_type,
        "expression": wanted.expression,
    }
    code = RequestCode.UPDATE_CONSUMER_FILTER
    await changed(ask, address, code, body=java_json.encode(body))


async def drop_filter(ask: Ask, address: str, group: str, topic: str) -> None:
    """Delete a group's filter."""
    fields = {"consumerGroup": group, "topic": topic}
    await changed(ask, address, RequestCode.DELETE_CONSUMER_FILTER, fields)


async def changed(
    ask: Ask,
    address: str,
    code: RequestCode,
    fields: Mapping[str, object] | None = None,
    body: bytes = b"",
) -> None:
    """Request a change that RocketMQ brokers don't support."""
    try:
        await call(ask, address, code, fields, body)
    except RequestFailedError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise GatewayError(
            _("The broker at %s can't change this file.") % address,
            _("Apache RocketMQ brokers don't support this request."),
        ) from error
