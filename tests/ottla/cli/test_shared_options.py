"""An option that several commands have is declared once, as a group or as a type."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.ottla.conftest import ROOT


def options(path: Path) -> list[tuple[str, str]]:
    """Return the name and the type of each option that a file declares as a parameter or a field, if the type has a help."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.arg):
            name, annotation = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, annotation = node.target.id, node.annotation
        else:
            continue
        if isinstance(annotation, ast.Subscript) and "help=" in (text := ast.unparse(annotation)):
            found.append((name, text))
    return found


def test_no_option_is_declared_in_the_same_words_at_two_commands() -> None:
    places = defaultdict(list)
    for path in sorted((ROOT / "ottla/cli").rglob("*.py")):
        for option in options(path):
            places[option].append(path.relative_to(ROOT).as_posix())
    assert len(places) > 100
    twice = {option: paths for option, paths in places.items() if len(paths) > 1}
    assert not twice, "declare these in ottla/cli/shared_options.py"
