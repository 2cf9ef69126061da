"""The project's own source files, parsed once: what the rules of this folder look at."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
#: Each may import only what is left of it.
LAYERS = ("protocol", "storage", "server", "controller", "broker", "ottla")
#: Folders of `ottla/` that have a link of their name at the top.
PARTS = (*LAYERS[:-1], "pipeline")


class Source(NamedTuple):
    """A file: its path from the root, its module's name, its lines and its tree."""

    path: str
    module: str
    lines: list[str]
    tree: ast.Module

    @property
    def package(self) -> str:
        return layer_of(self.module)


@cache
def text_of(file: Path) -> str:
    return file.read_text()


@cache
def tree_of(file: Path) -> ast.Module:
    """A thousand files are parsed once, whichever rules look at them."""
    return ast.parse(text_of(file))


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, or of a class in it, which is walked once for a dozen rules. What a name is used for is a field (`ctx`), and no node here."""
    found: list[ast.AST] = [tree]
    for node in found:
        for name in node._fields:
            value = getattr(node, name, None)
            if type(value) is list:
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and name != "ctx":
                found.append(value)
    return found


def folder_of(layer: str) -> str:
    return layer if layer == "ottla" else f"ottla/{layer}"


@cache
def sources() -> tuple[Source, ...]:
    return tuple(
        source_of(file)
        for layer in LAYERS
        for file in sorted((ROOT / folder_of(layer)).rglob("*.py"))
        if layer != "ottla" or file.relative_to(ROOT).parts[1] not in PARTS
    )


@cache
def pipeline_sources() -> tuple[Source, ...]:
    """The pipeline is no layer: a program of its own, which imports nothing of the servers."""
    return tuple(source_of(file) for file in sorted((ROOT / "ottla" / "pipeline").rglob("*.py")))


def source_of(file: Path) -> Source:
    path = file.relative_to(ROOT)
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return Source(short_path(str(path)), module, text_of(file).splitlines(), tree_of(file))


def short_path(path: str) -> str:
    """`broker/broker_node.py` for `ottla/broker/broker_node.py`: as pages and tables name it. The links at the top lead there."""
    top, _, rest = path.partition("/")
    return rest if top == "ottla" and rest.partition("/")[0] in PARTS else path


def layer_of(module: str) -> str:
    """`storage` for ottla.storage.log.log, `ottla` for ottla.node.node; empty for a module of others, and for the version of all."""
    if module == "ottla.__version__":
        return ""
    top, _, rest = module.partition(".")
    inner = rest.partition(".")[0]
    return "" if top != "ottla" else inner if inner in LAYERS else "ottla"


@cache
def imported_modules(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and full name of everything imported, also late and for type checkers only."""
    found = []
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


@cache
def imported_names(tree: ast.Module) -> frozenset[str]:
    """The full names of everything imported."""
    return frozenset(name for _, name in imported_modules(tree))


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""
