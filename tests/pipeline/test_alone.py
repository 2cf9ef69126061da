"""The pipeline is a Kafka client like any other, and its files are as short as the rest."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.rules.sources import imported_modules, package_of

FOLDER = Path(__file__).resolve().parents[2] / "pipeline"
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70


def test_it_imports_nothing_of_the_cluster_but_its_connector_for_spark_and_addresses() -> None:
    wrong = [
        f"{file.name}:{line} {name}"
        for file in FOLDER.rglob("*.py")
        for line, name in imported_modules(ast.parse(file.read_text()))
        if package_of(name)
        and not name.startswith(("ottla.pipeline", "ottla.spark", "ottla.server.address", "ottla.server.installation"))
    ]
    assert not wrong


def test_files_and_functions_are_short_and_say_what_they_are_for() -> None:
    for file in FOLDER.rglob("*.py"):
        tree = ast.parse(file.read_text())
        assert ast.get_docstring(tree), file
        assert len(file.read_text().splitlines()) <= FILE_LINES_MAX, file
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno <= FUNCTION_LINES_MAX, f"{file}:{node.name}"
