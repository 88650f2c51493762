"""Our programs based on the published gRPC clients for Java, Python and Node."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.peer import classpath_of
from tests.support.quick_java import COMPILER, OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = Path(__file__).resolve().parent.parent / "interop" / "grpc_clients"
JAVA_CLIENT = "org.apache.rocketmq:rocketmq-client-java:5.2.0"
INSTALL_SECONDS = 600
RUN_SECONDS = 420
MARK = "OUTCOME "


def node_missing() -> str:
    """Return the missing prerequisites of the Node client, or an empty string."""
    return "" if shutil.which("npm") else "npm (Node 16 or later)"


def java_command(directory: Path) -> list[str]:
    """Return the command of the Java program, compiled into the directory."""
    jars = classpath_of(JAVA_CLIENT)
    subprocess.run(
        [*COMPILER, "-d", str(directory), "-cp", jars, str(SOURCES / "GrpcClient.java")],
        timeout=INSTALL_SECONDS,
        check=True,
    )
    java = ["java", "-Xmx256m", *OPTIONS, f"-Duser.home={directory}"]
    return [*java, "-cp", f"{directory}:{jars}", "GrpcClient"]


def node_command(directory: Path) -> list[str]:
    """Return the command of the Node program, with its packages installed into the directory."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCES / name, directory)
    subprocess.run(
        [
            "npm",
            "ci",
            "--ignore-scripts",
            "--prefer-offline",
            "--no-audit",
            "--no-fund",
            "--silent",
        ],
        cwd=directory,
        timeout=INSTALL_SECONDS,
        check=True,
    )
    return ["node", str(SOURCES / "grpc_client.js"), str(directory)]


def python_command() -> list[str]:
    """Return the command of the Python program."""
    return [sys.executable, str(SOURCES / "grpc_client.py")]


def outcomes(
    command: Sequence[str],
    port: int,
    *steps: str,
    security: str = "cleartext",
    account: tuple[str, str] = ("", ""),
    **environment: object,
) -> dict[str, str]:
    """Run steps one after the other; return the outcome of each."""
    ran = subprocess.run(
        [*command, f"127.0.0.1:{port}", security, *account, *steps],
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            **{key: str(value) for key, value in environment.items()},
        },
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=True,
    )
    lines = [line.removeprefix(MARK) for line in ran.stdout.splitlines() if line.startswith(MARK)]
    return dict(line.split(": ", 1) for line in lines)
