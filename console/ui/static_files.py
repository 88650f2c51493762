"""Static files: hashed names after `collectstatic`, plain names before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage

if TYPE_CHECKING:
    from django.http import HttpRequest
    from whitenoise.responders import StaticFile


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Uses plain names until `collectstatic` has run, and only hashed names afterwards."""

    def stored_name(self, name: str) -> str:
        if not self.hashed_files:
            return name
        return str(super().stored_name(name))


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Returns static files in one piece: under ASGI, streaming a file blocks the loop and warns.

    Our largest file has 50 KB.
    """

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        answer = static_file.get_response(request.method, request.META)
        body = b""
        # A Django response around the file would send request_finished when it closes.
        if answer.file is not None:
            with answer.file as file:
                body = file.read()
        whole = HttpResponse(body, status=answer.status)
        # A 304 has no body, so it must not have a content type.
        del whole["content-type"]
        for name, value in answer.headers:
            whole[name] = value
        return whole
