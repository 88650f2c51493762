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
        streamed = WhiteNoiseMiddleware.serve(static_file, request)
        whole = HttpResponse(
            b"".join(streamed.streaming_content),
            status=streamed.status_code,
            headers=dict(streamed.headers),
        )
        streamed.close()
        if "content-type" not in streamed.headers:
            del whole["content-type"]  # a 304 describes no body
        return whole
