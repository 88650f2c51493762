"""Server reflection: list the available services and messages for tools like grpcurl.

grpc.reflection.v1 and v1alpha have the same messages and get the same answers.

Source: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated

from broker_core.grpc_messages import descriptors
from broker_core.grpc_messages.codec import Field, ProtoMessage, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
METHOD = "ServerReflectionInfo"
NOT_FOUND = 5
UNIMPLEMENTED = 12


class Request(ProtoMessage):
    """ServerReflectionRequest: one query."""

    host: Annotated[str, Field(1)] = ""
    file_by_filename: Annotated[str | None, Field(3, oneof="request")] = None
    file_containing_symbol: Annotated[str | None, Field(4, oneof="request")] = None
    file_containing_extension: Annotated[bytes | None, Field(5, oneof="request")] = None
    all_extension_numbers_of_type: Annotated[str | None, Field(6, oneof="request")] = None
    list_services: Annotated[str | None, Field(7, oneof="request")] = None


class FileDescriptorResponse(ProtoMessage):
    """Files, each as a FileDescriptorProto."""

    file_descriptor_proto: Annotated[list[bytes], Field(1)] = []


class ServiceResponse(ProtoMessage):
    """A service."""

    name: Annotated[str, Field(1)] = ""


class ListServiceResponse(ProtoMessage):
    """All services."""

    service: Annotated[list[ServiceResponse], Field(1)] = []


class ErrorResponse(ProtoMessage):
    """The reason why the query failed."""

    error_code: Annotated[int, Field(1)] = 0
    error_message: Annotated[str, Field(2)] = ""


class Response(ProtoMessage):
    """ServerReflectionResponse: the answer to a query."""

    valid_host: Annotated[str, Field(1)] = ""
    original_request: Annotated[Request | None, Field(2)] = None
    file_descriptor_response: Annotated[
        FileDescriptorResponse | None, Field(4, oneof="response")
    ] = None
    list_services_response: Annotated[ListServiceResponse | None, Field(6, oneof="response")] = None
    error_response: Annotated[ErrorResponse | None, Field(7, oneof="response")] = None


class _NamedDescriptor(ProtoMessage):
    """The common fields of a DescriptorProto, EnumDescriptorProto or method."""

    name: Annotated[str, Field(1)] = ""


class _MessageType(ProtoMessage):
    name: Annotated[str, Field(1)] = ""
    nested_type: Annotated[list[_NamedDescriptor], Field(3)] = []
    enum_type: Annotated[list[_NamedDescriptor], Field(4)] = []


class _Service(ProtoMessage):
    name: Annotated[str, Field(1)] = ""
    method: Annotated[list[_NamedDescriptor], Field(2)] = []


class _File(ProtoMessage):
    package: Annotated[str, Field(2)] = ""
    dependency: Annotated[list[str], Field(3)] = []
    message_type: Annotated[list[_MessageType], Field(4)] = []
    enum_type: Annotated[list[_NamedDescriptor], Field(5)] = []
    service: Annotated[list[_Service], Field(6)] = []


def answer(data: bytes, services: Sequence[str]) -> bytes:
    """Return the answer to a request; `services` are the names of the available services.

    Raises:
        ProtobufError: the bytes aren't a request.
    """
    request = decode(Request, data)
    response = Response(request.host, request)
    if request.list_services is not None:
        named = [ServiceResponse(name) for name in sorted(services)]
        response.list_services_response = ListServiceResponse(named)
    elif request.file_by_filename is not None:
        _answer_file(response, request.file_by_filename)
    elif request.file_containing_symbol is not None:
        file = _symbols().get(request.file_containing_symbol.lstrip("."))
        _answer_file(response, file or request.file_containing_symbol)
    else:
        response.error_response = ErrorResponse(
            UNIMPLEMENTED,
            "this protocol has no extensions; request a file, a symbol or the services",
        )
    return encode(response)


def _answer_file(response: Response, name: str) -> None:
    files = descriptors.files()
    if name not in files:
        response.error_response = ErrorResponse(NOT_FOUND, f"{name} was not found")
        return
    response.file_descriptor_response = FileDescriptorResponse(
        [files[each] for each in _with_imports(name)]
    )


def _with_imports(name: str) -> list[str]:
    """Return a file and all of its imports, the file itself first."""
    found = [name]
    for each in found:
        dependencies = decode(_File, descriptors.files()[each]).dependency
        found += [other for other in dependencies if other not in found]
    return found


@cache
def _symbols() -> dict[str, str]:
    """Return the file that defines each symbol."""
    return {
        symbol: file
        for file, data in descriptors.files().items()
        for symbol in _symbols_of(decode(_File, data))
    }


def _symbols_of(file: _File) -> Iterator[str]:
    package = file.package
    for enum in file.enum_type:
        yield f"{package}.{enum.name}"
    for message in file.message_type:
        yield f"{package}.{message.name}"
        for inner in (*message.nested_type, *message.enum_type):
            yield f"{package}.{message.name}.{inner.name}"
    for service in file.service:
        yield f"{package}.{service.name}"
        for method in service.method:
            yield f"{package}.{service.name}.{method.name}"
