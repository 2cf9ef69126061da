"""Tests, tools and benchmarks import only names that exist: no type checker reads them, and `make test` runs few of the
benchmarks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.rules.sources import ROOT, nodes_of, tree_of

OURS = ("ottla", "tests", "tools", "benchmarks")
FOLDERS = ("tests", "tools", "benchmarks")


def test_each_name_that_is_imported_exists() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {name} of {module}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for module, name in imported_from(path)
        if not exists(module, name)
    ]
    assert not missing, "these names do not exist:\n" + "\n".join(missing)


def imported_from(path: Path) -> Iterator[tuple[str, str]]:
    for node in nodes_of(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level and node.module.split(".")[0] in OURS:
            for alias in node.names:
                yield node.module, alias.name


def exists(module: str, name: str) -> bool:
    place = ROOT / module.replace(".", "/")
    if (place / f"{name}.py").exists() or (place / name / "__init__.py").exists():
        return True
    return name in names_of(place.with_suffix(".py")) or name in names_of(place / "__init__.py")


@cache
def names_of(path: Path) -> frozenset[str]:
    """Return the names that a module binds at any depth, except in functions and classes."""
    if not path.exists():
        return frozenset()
    found: set[str] = set()
    front: list[ast.AST] = list(tree_of(path).body)
    while front:
        node = front.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
                continue
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {(each.asname or each.name).split(".")[0] for each in names}
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
        front += ast.iter_child_nodes(node)
    return frozenset(found)
