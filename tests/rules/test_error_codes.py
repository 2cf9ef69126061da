"""Every error code that a client can get is asserted by a test: a code that no test expects may disappear unnoticed.

NOT_ENOUGH_REPLICAS_AFTER_APPEND was such a code: a broker that never sent it passed all tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from tests.rules.generated import errors_of
from tests.rules.sources import ROOT, Source, nodes_of, sources, text_of, tree_of

#: Packages and folders whose code chooses the error for a client.
ANSWERING = ("storage", "server", "controller", "broker")
#: Tests that go through all codes, or that have lists of possible codes: they expect no particular code.
NOT_EXPECTING = ("tests/protocol/test_errors.py", "tests/sim/clients/", "tests/chaos/", "tests/compat/", "tests/rules/")
HANDLERS = ("broker/api/", "controller/handlers/")
#: Folders whose files name the errors that they answer with in their docstrings.
NAMING = ("broker/api/", "broker/produce/handler.py", "broker/produce/append.py", "broker/fetch/handler.py")
#: Files whose errors are in the docstring of their handler.
PART_OF = {"broker/produce/append.py": "broker/produce/handler.py"}


def codes(root: ast.AST) -> Iterator[ast.Attribute]:
    for node in nodes_of(root) if isinstance(root, ast.Module) else ast.walk(root):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("ErrorCode", "E"):
            yield node


def names(root: ast.AST) -> Iterator[str]:
    """Codes, and texts that are the name of one: many tests show errors as text."""
    yield from (code.attr for code in codes(root))
    for node in ast.walk(root):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ErrorCode.__members__:
            yield node.value


def answered(source: Source) -> set[str]:
    """Codes whose use is no comparison: of sets, tuples and keys is asked whether they contain a code."""
    compared = {id(code) for node in nodes_of(source.tree) for part in _compared(node) for code in codes(part)}
    return {code.attr for code in codes(source.tree) if id(code) not in compared} - {"NONE"}


def _compared(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare | ast.Set):
        yield node
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        yield node.value
    elif isinstance(node, ast.Dict):
        yield from (key for key in node.keys if key is not None)


class Expected(NamedTuple):
    text: str
    codes: frozenset[str]


@cache
def expected() -> tuple[Expected, ...]:
    """Return for each test file the codes that it asserts, compares with, is parametrized with, or has in a table."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not str(path.relative_to(ROOT)).startswith(NOT_EXPECTING):
            there = frozenset(name for node in _expectations(tree_of(path)) for name in names(node))
            found.append(Expected(text_of(path), there))
    transcripts = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("transcripts/*.txt")))
    found.append(Expected("", frozenset(re.findall(r"[A-Z_]{6,}", transcripts))))
    return tuple(found)


def _expectations(tree: ast.Module) -> Iterator[ast.AST]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Assert | ast.Compare):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.decorator_list
    yield from (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))


def test_every_error_code_that_is_answered_is_asserted() -> None:
    asserted = frozenset().union(*(each.codes for each in expected()))
    missing = {
        code: source.path
        for source in sources()
        if source.package in ANSWERING
        for code in answered(source)
        if code not in asserted
    }
    assert not missing, f"the code answers with these errors, and no test expects them: {missing}"


class Handler(NamedTuple):
    """Return the code that serves one API: a file with its name, or a function with its name together with everything in its
    file that the function uses.
    """

    api: str
    code: Source


def handlers(source: Source) -> list[Handler]:
    name = Path(source.path).stem
    if name.upper() in ApiKey.__members__ and not any(f.name == name for f in source.tree.body if is_named(f)):
        return [Handler(name, source)]
    parts = {each.name: each for each in source.tree.body if is_named(each)}
    found = []
    for name, function in parts.items():
        if name.upper() in ApiKey.__members__ and isinstance(function, ast.FunctionDef):
            body = [parts[each] for each in reached(name, parts)]
            found.append(Handler(name, source._replace(tree=ast.Module(body, []))))
    return found


def named_in(part: ast.AST) -> set[str]:
    """Return the errors in the docstring of a module, a function or a class."""
    listed = errors_of(ast.get_docstring(part)) if isinstance(part, ast.Module) or is_named(part) else []
    return {code for codes, _ in listed for code in codes.split(", ")}


def is_named(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def reached(name: str, parts: Mapping[str, ast.AST]) -> list[str]:
    """Return the names of a module's functions and classes that one of them uses, directly or not."""
    found = [name]
    for each in found:
        used = {node.id for node in ast.walk(parts[each]) if isinstance(node, ast.Name)}
        found += [part for part in parts if part in used and part not in found]
    return found


def test_every_error_code_in_a_handler_is_asserted_where_its_api_is_tested() -> None:
    """One table expects the authorizer's rejections for every API: tests/broker/authorization/test_each_api.py."""
    missing = []
    for source in sources():
        for handler in handlers(source) if source.path.startswith(HANDLERS) else ():
            request = "".join(word.capitalize() for word in handler.api.split("_")) + "Request"
            sent = {code for code in answered(handler.code) if not code.endswith("_AUTHORIZATION_FAILED")}
            asserted = frozenset().union(*(each.codes for each in expected() if request in each.text))
            missing += [f"{source.path} {handler.api}: {code}" for code in sorted(sent - asserted)]
    assert not missing, "no test that names the API's request asserts these errors:\n" + "\n".join(missing)


def test_a_handler_names_its_errors_at_the_top() -> None:
    """The errors of authorization are those of the resources in the row or the docstring."""
    wrong = []
    for source in sources():
        if source.path.startswith(NAMING):
            for handler in (*handlers(source), Handler("", source)):
                docstring = tree_of(ROOT / "ottla" / PART_OF[source.path]) if source.path in PART_OF else source.tree
                named = named_in(docstring) | {code for part in handler.code.tree.body for code in named_in(part)}
                sent = {code for code in answered(handler.code) if not code.endswith("_AUTHORIZATION_FAILED")}
                unknown = named - set(ErrorCode.__members__)
                wrong += [
                    f"{source.path} {handler.api}: {code} is sent, and not named" for code in sorted(sent - named)
                ]
                wrong += [f"{source.path} {handler.api}: there is no error {code}" for code in sorted(unknown)]
    assert not wrong, "the docstring of a handler lists its errors, with their meaning:\n" + "\n".join(wrong)
