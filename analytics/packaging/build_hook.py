"""Build hook for hatchling: packages the Spark sources as `trebuchet_spark`.

    pip wheel --no-deps --wheel-dir DIR CHECKOUT

The wheel has only the modules that the sources import, found by following imports from ENTRIES.
`analytics.x` becomes `trebuchet_spark.x`, and `broker_core.x` becomes
`trebuchet_spark.broker_core.x`, so that the package doesn't collide with another package called
analytics, or with a checkout.

More than half of the modules belong to the broker: its wire and file formats. They can't move next
to the sources, because the broker doesn't depend on analytics, and a wheel with a single name has
to rename them in any case. So all modules are renamed by one rule while the wheel is built, and the
checkout has each of them once. The rule rewrites import statements, and the build fails if anything
else refers to a module by its old name.
"""

from __future__ import annotations

import ast
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "trebuchet_spark"
RENAMED = {"analytics": PACKAGE, "broker_core": f"{PACKAGE}.broker_core"}
# Module -> path in the wheel.
ENTRIES = {
    "analytics.packaging.trebuchet_spark": f"{PACKAGE}/__init__.py",
    "analytics.packaging.pyspark_commitlog": "pyspark_commitlog.py",
    "analytics.packaging.pyspark_rocketmq": "pyspark_rocketmq.py",
}
PACKAGES_OF_ENTRIES = ("analytics", "analytics.packaging")


class SparkWheel(BuildHookInterface[Any]):
    """Passes the renamed modules to hatchling."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        self._made = Path(tempfile.mkdtemp(prefix="trebuchet-spark-"))
        for place, text in sorted(renamed_modules(root).items()):
            file = self._made / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            build_data["force_include"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._made)


def renamed_modules(root: Path) -> dict[str, str]:
    """Return the path and text of each module in the wheel.

    Raises:
        ValueError: a module refers to another one in a way that can't be renamed.
    """
    found: dict[str, str] = {}
    waiting = list(ENTRIES)
    seen = {*waiting, *PACKAGES_OF_ENTRIES}
    while waiting:
        name = waiting.pop()
        file = _file_of(root, name)
        assert file is not None
        text = file.read_text(encoding="utf-8")
        place = ENTRIES.get(name) or _place(_renamed(name), is_package=file.stem == "__init__")
        found[place] = _with_renamed_imports(text, file)
        for imported in _imports(ast.parse(text)):
            parts = imported.split(".")
            for count in range(1, len(parts) + 1):
                module = ".".join(parts[:count])
                if module not in seen and parts[0] in RENAMED and _file_of(root, module):
                    seen.add(module)
                    waiting.append(module)
    return found


def _file_of(root: Path, module: str) -> Path | None:
    base = root / module.replace(".", "/")
    files = (base.with_suffix(".py"), base / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _place(module: str, *, is_package: bool) -> str:
    return module.replace(".", "/") + ("/__init__.py" if is_package else ".py")


def _renamed(module: str) -> str:
    top, dot, rest = module.partition(".")
    return RENAMED[top] + dot + rest if top in RENAMED else module


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the names imported at run time anywhere in a module; some may not be modules."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and _is_for_types(node):
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting += ast.iter_child_nodes(node)


def _is_for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _with_renamed_imports(text: str, file: Path) -> str:
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in RENAMED:
            line = lines[node.lineno - 1]
            before, after = line[: node.col_offset], line[node.col_offset :]
            statement = f"from {node.module} "
            if not after.startswith(statement):
                raise ValueError(f"{file}:{node.lineno}: write {statement.strip()!r} on one line")
            new = f"from {_renamed(str(node.module))} "
            lines[node.lineno - 1] = before + new + after.removeprefix(statement)
    made = "".join(lines)
    for line_number, name in _old_names(ast.parse(made)):
        raise ValueError(f"{file}:{line_number}: {name} isn't in the wheel")
    return made


def _old_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield remaining uses of a module's old name: imports and strings such as `analytics.x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." if node.level else str(node.module)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A docstring contains more than a name.
            names = [node.value] if all(map(str.isidentifier, node.value.split("."))) else []
            names = [name for name in names if "." in name]
        else:
            continue
        for name in names:
            if name == "." or name.split(".")[0] in RENAMED:
                yield node.lineno, name
