"""Each module of the six packages has the test file that mirrors it, or a line in mirrors.py that names another one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from ottla.protocol.api import ApiKey
from tests.rules.mirrors import COVERED_BY
from tests.rules.sources import ROOT, imported_modules, sources

PACKAGES = ("protocol", "storage", "server", "controller", "broker", "ottla")
#: A test reaches a module that it imports, what that imports, and once more: further away it is another module's test.
HOPS_MAX = 3
#: A test that imports one of these starts whole nodes, and reaches what its requests reach, which imports do not show.
WHOLE_NODES = frozenset({"ottla/node.py", "ottla/testing/cluster.py", "ottla/cli/local_nodes.py"})
#: A command line that does so.
STARTS_OTTLA = re.compile(r'"-m",\s*"ottla')


def modules() -> list[str]:
    """Paths of all modules but those `__init__.py` that define no function."""
    return [
        source.path
        for source in sources()
        if source.package in PACKAGES
        and (not source.path.endswith("__init__.py") or any(isinstance(n, ast.FunctionDef) for n in source.tree.body))
    ]


def mirror(path: str) -> str:
    file = Path(path)
    return str("tests" / file.parent / f"test_{file.stem}.py")


def row_of(path: str) -> str | None:
    """The module's own row, or its folder's."""
    return next((row for row in (path, f"{Path(path).parent}/") if row in COVERED_BY), None)


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


@cache
def module_paths() -> dict[str, str]:
    return {source.module: source.path for source in sources()}


def named_modules(tree: ast.AST) -> set[str]:
    """Paths of the modules that are imported, or named in a text as import_module and monkeypatch take it."""
    names = {name for _, name in imported_modules(tree)}
    names |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    found = set()
    for name in names:
        while name:
            if name in module_paths():
                found.add(module_paths()[name])
                break
            name = name.rpartition(".")[0]
    return found


@cache
def imports_of(path: str) -> frozenset[str]:
    (source,) = (each for each in sources() if each.path == path)
    return frozenset(named_modules(source.tree) - {path})


@cache
def with_support(test_file: str) -> frozenset[str]:
    """The test file, the conftest.py of its folders, and the modules of tests that they import."""
    found: set[str] = set()
    conftests = [str(folder / "conftest.py") for folder in Path(test_file).parents]
    queue = [test_file, *(path for path in conftests if (ROOT / path).exists())]
    while queue:
        path = queue.pop()
        if path not in found:
            found.add(path)
            names = {name for _, name in imported_modules(parsed(path)) if name.startswith("tests.")}
            files = {f"{each.replace('.', '/')}.py" for name in names for each in (name, name.rpartition(".")[0])}
            queue += [file for file in files if (ROOT / file).exists()]
    return frozenset(found)


@cache
def reached(test_file: str) -> set[str]:
    found: set[str] = set()
    support = with_support(test_file)
    for path in support:
        found |= named_modules(parsed(path))
    if not found.isdisjoint(WHOLE_NODES) or any(STARTS_OTTLA.search((ROOT / path).read_text()) for path in support):
        return set(module_paths().values())
    for _ in range(HOPS_MAX - 1):
        found |= {each for path in found for each in imports_of(path)}
    return found


def is_handler(module: str) -> bool:
    """Or a guard: one file of an API."""
    return api_of(module) in ApiKey.__members__ and Path(module).parent.name in ("handlers", "authorization")


def api_of(module: str) -> str:
    return Path(module).stem.removesuffix("_guard").upper()


def names_its_api(test_file: str, module: str) -> bool:
    """Handlers and guards are reached by requests: `ListGroupsRequest` or `LIST_GROUPS` for list_groups.py."""
    request = api_of(module).title().replace("_", "") + "Request"
    name = re.compile(rf"\b({request}|{api_of(module)})\b")
    return any(name.search((ROOT / path).read_text()) for path in with_support(test_file))


def names_its_folder(test_file: str, row: str) -> bool:
    """Modules that are found by their names are reached by way of their package: `ottla.protocol.messages`."""
    return row.endswith("/") and f"{row}__init__.py" in reached(test_file)


def test_each_module_has_its_test_file_or_a_row_that_names_another_one() -> None:
    missing = [path for path in modules() if not (ROOT / mirror(path)).exists() and row_of(path) is None]
    assert not missing, (
        "write these test files, or add rows to tests/rules/mirrors.py that name the tests:\n"
        + "\n".join(f"{path}: {mirror(path)}" for path in missing)
    )


def test_no_row_is_stale() -> None:
    needed = {row_of(path) for path in modules() if not (ROOT / mirror(path)).exists()}
    stale = [row for row in COVERED_BY if row not in needed]
    assert not stale, (
        "remove these rows of tests/rules/mirrors.py: the module is gone, or has a test file of its own:\n"
        + "\n".join(stale)
    )
    assert not [each for each in COVERED_BY.values() if not (ROOT / each).exists()]


def reaches(test_file: str, module: str, row: str) -> bool:
    if is_handler(module):
        return names_its_api(test_file, module)
    return module in reached(test_file) or names_its_folder(test_file, row)


def test_the_test_file_of_a_row_reaches_the_module() -> None:
    apart = [
        f"{path}: {COVERED_BY[row]}"
        for path in modules()
        if (row := row_of(path)) is not None and not reaches(COVERED_BY[row], path, row)
    ]
    assert not apart, (
        "these test files do not reach the module: name another one in tests/rules/mirrors.py:\n" + "\n".join(apart)
    )
