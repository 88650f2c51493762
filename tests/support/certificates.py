"""Certificates for tests."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def certificate(directory: Path, name: str, *, days: int = 30) -> tuple[Path, Path]:
    """Make a certificate; return its file and its key file."""
    made, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days), "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(made)),
        ],
        capture_output=True,
        check=True,
    )
    return made, key
