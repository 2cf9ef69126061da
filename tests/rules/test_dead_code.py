"""The product has no part that only tests use: each module, and each function and class of one, is used by the packages."""

from __future__ import annotations

import ast
from functools import cache

from tests.rules.sources import ROOT, Source, dotted, nodes_of, sources

#: Messages are declared because Kafka has them, and are looked up by name; their set is compared with Kafka's own.
DECLARATIONS = ("api_message", "message", "struct")
#: A decorator with one of these names registers the decorated function, so nothing else has to name it.
REGISTERING = ("command", "named", "default", "fixture")
#: Functions that are called only by name, or that are for users of the package.
USED_FROM_OUTSIDE = {
    "pytest_addoption": "pytest calls it (ottla/testing/plugin.py)",
    "pytest_runtest_setup": "pytest calls it (ottla/testing/plugin.py)",
    "pytest_runtest_makereport": "pytest calls it (ottla/testing/plugin.py)",
    "pytest_sessionfinish": "pytest calls it (ottla/testing/plugin.py)",
    "pytest_configure_node": "pytest-xdist calls it (ottla/testing/plugin.py)",
    "kafka_proc": "a conftest.py calls it (ottla/testing/factories.py)",
    "kafka_cluster": "a conftest.py calls it (ottla/testing/factories.py)",
    "kafka_topic": "a conftest.py calls it (ottla/testing/factories.py)",
    "kafka_snapshot": "a conftest.py calls it (ottla/testing/factories.py)",
    "kafka_fork": "a conftest.py calls it (ottla/testing/factories.py)",
    "kafka_user": "a conftest.py calls it (ottla/testing/factories.py)",
    "__getattr__": "Python calls it: a module's attributes, made when first asked for",
}


@cache
def used_names() -> frozenset[str]:
    """Return the names and attributes that are read anywhere in the packages. (An import alone is no use of a name.)"""
    found = set()
    for source in sources():
        for node in nodes_of(source.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
    return frozenset(found)


def is_registered(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    for decorator in node.decorator_list:
        name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name in DECLARATIONS or name.rpartition(".")[2] in REGISTERING:
            return True
    return False


def dead(source: Source) -> list[str]:
    return [
        f"{source.path}:{node.lineno} {node.name}"
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name not in used_names()
        and node.name not in USED_FROM_OUTSIDE
        and not is_registered(node)
    ]


def test_every_function_and_class_of_a_module_is_used_by_the_packages() -> None:
    unused = [each for source in sources() for each in dead(source)]
    assert not unused, (
        "the packages use none of these: remove them, or move what only tests use to the tests:\n" + "\n".join(unused)
    )


def test_every_module_is_imported_by_another_one_or_run_as_a_program() -> None:
    """A module may also be named in a text of the packages or of pyproject.toml: commands, messages, plug-ins."""
    named = (ROOT / "pyproject.toml").read_text()
    imported = set()
    for source in sources():
        for node in nodes_of(source.tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                imported.add(node.value.partition(":")[0])
    unused = [
        source.path
        for source in sources()
        if source.module not in imported
        and not source.path.endswith(("__init__.py", "__main__.py"))
        and not source.path.startswith("protocol/messages/")
        and source.module not in named
    ]
    assert not unused, "no module imports these, and no command, message or pyproject.toml names them:\n" + "\n".join(
        unused
    )
