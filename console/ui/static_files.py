"""Static files: hashed names once they are collected, plain names before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage

if TYPE_CHECKING:
    from django.http import HttpRequest
    from whitenoise.responders import StaticFile


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Names plain files until `collectstatic` has run, and only hashed ones afterwards."""

    def stored_name(self, name: str) -> str:
        if not self.hashed_files:
            return name
        return str(super().stored_name(name))


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Answers static files whole: under ASGI a file that is streamed blocks the loop and warns.

    Our largest file has 50 KB.
    """

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        answer = static_file.get_response(request.method, request.META)
        body = b""
        # A response of Django's around the file would say at its end that the request has ended.
        if answer.file is not None:
            with answer.file as file:
                body = file.read()
        whole = HttpResponse(body, status=answer.status)
        # What is not said is not there: a 304 describes no body.
        del whole["content-type"]
        for name, value in answer.headers:
            whole[name] = value
        return whole
