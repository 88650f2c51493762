"""Packages as pip installs them: a module with its dist-info."""

from __future__ import annotations

import tomllib
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent / "extensions"
"""A directory with an installed package that has one extension of each kind."""


def install(
    directory: Path, name: str, version: str, points: dict[str, dict[str, str]], **modules: str
) -> None:
    """Install a package into a directory: entry points by group, module sources by name."""
    info = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, table in points.items():
        lines += [f"[{group}]", *(f"{point} = {target}" for point, target in table.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, text in modules.items():
        (directory / f"{module}.py").write_text(text)


def install_project(directory: Path, pyproject: str, **modules: str) -> None:
    """Install the package that a pyproject.toml describes."""
    project = tomllib.loads(pyproject)["project"]
    install(directory, project["name"], project["version"], project["entry-points"], **modules)
