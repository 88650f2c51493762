"""Requests that read a broker's configuration files, each whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.errors import SYSTEM_ERROR, RequestFailedError
from console.gateway.files import ConfigFile
from console.gateway.requests.call import body_of, call, reading

if TYPE_CHECKING:
    from console.gateway.requests.call import Ask

CODES = {
    ConfigFile.TOPICS: RequestCode.GET_ALL_TOPIC_CONFIG,
    ConfigFile.GROUPS: RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    ConfigFile.OFFSETS: RequestCode.GET_ALL_CONSUMER_OFFSET,
    ConfigFile.DELAYS: RequestCode.GET_ALL_DELAY_OFFSET,
    ConfigFile.FILTERS: RequestCode.GET_ALL_CONSUMER_FILTER,
}


async def config_file(ask: Ask, address: str, file: ConfigFile) -> dict[str, Any] | None:
    """Return a file as its broker has it in memory; None: its kind of broker does not tell."""
    code = CODES[file]
    try:
        answer = await call(ask, address, code)
    except RequestFailedError as error:
        # RocketMQ's own know no request for filters, and answer an empty table of offsets with an
        # error without a remark.
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
