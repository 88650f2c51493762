from __future__ import annotations

from typing import Any

import pytest

from broker_core.errors import ProtobufError
from broker_core.grpc_messages import descriptors, reflection
from broker_core.grpc_messages.codec import decode, encode
from broker_core.grpc_messages.reflection import Request, Response

SERVICE = "apache.rocketmq.v2.MessagingService"


def ask(**question: Any) -> Response:
    request = Request(**question)
    response = decode(Response, reflection.answer(encode(request), [SERVICE]))
    assert response.original_request == request
    return response


def names(response: Response) -> list[str]:
    """Return the names of the returned files."""
    assert response.file_descriptor_response is not None
    by_content = {data: name for name, data in descriptors.files().items()}
    return [by_content[each] for each in response.file_descriptor_response.file_descriptor_proto]


def test_the_services_are_listed() -> None:
    listed = ask(host="here", list_services="")

    assert listed.valid_host == "here"
    assert listed.list_services_response is not None
    assert [each.name for each in listed.list_services_response.service] == [SERVICE]


@pytest.mark.parametrize(
    "symbol",
    [
        SERVICE,
        f"{SERVICE}.SendMessage",
        "apache.rocketmq.v2.SendMessageRequest",
        ".apache.rocketmq.v2.SendMessageRequest",
    ],
)
def test_a_symbol_includes_its_file_and_its_imports(symbol: str) -> None:
    assert names(ask(file_containing_symbol=symbol)) == [
        "apache/rocketmq/v2/service.proto",
        "google/protobuf/duration.proto",
        "google/protobuf/timestamp.proto",
        "apache/rocketmq/v2/definition.proto",
    ]


@pytest.mark.parametrize(
    "symbol",
    [
        "apache.rocketmq.v2.Code",
        "apache.rocketmq.v2.Message.UserPropertiesEntry",
        "apache.rocketmq.v2.OffsetOption.Policy",
    ],
)
def test_enumerations_and_inner_types_are_found(symbol: str) -> None:
    assert names(ask(file_containing_symbol=symbol))[0] == "apache/rocketmq/v2/definition.proto"


def test_a_file_is_found_by_its_name() -> None:
    assert names(ask(file_by_filename="google/protobuf/duration.proto")) == [
        "google/protobuf/duration.proto"
    ]


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": "none.proto"},
        {"file_containing_symbol": "apache.rocketmq.v2.None"},
    ],
)
def test_a_missing_entry_is_an_error_in_the_answer(question: dict[str, str]) -> None:
    error = ask(**question).error_response

    assert error is not None
    assert (error.error_code, error.error_message) == (
        5,
        f"{next(iter(question.values()))} was not found",
    )


def test_extensions_are_not_supported() -> None:
    for response in (ask(all_extension_numbers_of_type="a.B"), ask()):
        assert response.error_response is not None
        assert response.error_response.error_code == 12


def test_an_invalid_request_is_a_declared_error() -> None:
    with pytest.raises(ProtobufError):
        reflection.answer(b"\x0a\xff", [])
