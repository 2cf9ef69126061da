"""The files of this repository that the connector needs.

The pipeline sends them to executors, and they are the distribution pyspark-ottla. They are found by following imports, so that
no list has to be maintained. A test checks that no file of the broker is among them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "ottla"
#: The folder that contains the package `ottla`.
ROOT = Path(__file__).resolve().parents[2]
ENTRY = "ottla.spark"


def needed_files(root: Path = ROOT) -> dict[str, Path]:
    """Return the file of each module that `import ottla.spark` can lead to, also by imports inside of functions."""
    found: dict[str, Path] = {}
    todo = [ENTRY]
    while todo:
        name = todo.pop()
        file = _file_of(root, name)
        if name in found or file is None:
            continue
        found[name] = file
        todo += [name.rpartition(".")[0], *_imports(file)]
    return dict(sorted(found.items()))


def _file_of(root: Path, name: str) -> Path | None:
    if name.partition(".")[0] != PACKAGE:
        return None
    path = root.joinpath(*name.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.exists()), None)


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
