"""The project's own source files, parsed once, for the rules in this folder."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
#: The packages, each after those that it may import. Two chains stand on the server's layer: that of the cluster, and that of
#: its users. The command line is the roof of both. A node passes the object that makes tables to its broker, in one function
#: that imports it late (`node/tables.py`).
STANDS_ON: dict[str, tuple[str, ...]] = {
    "protocol": (),
    "storage": ("protocol",),
    "server": ("storage",),
    "controller": ("server",),
    "broker": ("controller",),
    "node": ("broker", "tables"),
    "processes": ("node",),
    "container": ("node",),
    "client": ("server",),
    "web": ("client",),
    "registry": ("web",),
    "mirror": ("client",),
    "traffic": ("client",),
    "console": ("tables",),
    "columns": ("registry",),
    "spark": ("columns",),
    "tables": ("columns",),
    "local": ("processes", "client"),
    "testing": ("local", "container", "web", "traffic"),
    "cli": ("testing", "mirror", "console", "spark", "tables"),
    "pipeline": ("spark",),
    "__main__": ("cli",),
}
#: Folders of `ottla/` that have a link of their name at the top.
PARTS = ("protocol", "storage", "server", "controller", "broker", "pipeline")


class Source(NamedTuple):
    """A file: its path from the root, its module's name, its lines and its tree."""

    path: str
    module: str
    lines: list[str]
    tree: ast.Module

    @property
    def package(self) -> str:
        return package_of(self.module)


@cache
def text_of(file: Path) -> str:
    return file.read_text()


@cache
def tree_of(file: Path) -> ast.Module:
    """A thousand files are parsed once, whichever rules look at them."""
    return ast.parse(text_of(file))


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a tree, or of a class in it.

    It is walked once for a dozen rules. The use of a name is a field (`ctx`), and no node here.
    """
    found: list[ast.AST] = [tree]
    for node in found:
        for name in node._fields:
            value = getattr(node, name, None)
            if type(value) is list:
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and name != "ctx":
                found.append(value)
    return found


@cache
def below(package: str) -> frozenset[str]:
    """Return all packages that a package may import, itself included."""
    return frozenset({package}).union(*(below(each) for each in STANDS_ON[package]))


@cache
def sources() -> tuple[Source, ...]:
    files = sorted((ROOT / "ottla").rglob("*.py"))
    return tuple(found for found in map(source_of, files) if found.package != "pipeline")


@cache
def pipeline_sources() -> tuple[Source, ...]:
    """The pipeline is a program of its own, which imports nothing of the servers."""
    return tuple(source_of(file) for file in sorted((ROOT / "ottla" / "pipeline").rglob("*.py")))


def source_of(file: Path) -> Source:
    path = file.relative_to(ROOT)
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return Source(short_path(str(path)), module, text_of(file).splitlines(), tree_of(file))


def short_path(path: str) -> str:
    """Return a path as pages and tables name it: `broker/broker_node.py` for `ottla/broker/broker_node.py`. The links at the top lead there."""
    top, _, rest = path.partition("/")
    return rest if top == "ottla" and rest.partition("/")[0] in PARTS else path


def package_of(module: str) -> str:
    """Return the package of a module: `storage` for ottla.storage.log.log; empty for a module of others, and for `ottla` itself, which has the
    version of all.
    """
    top, _, rest = module.partition(".")
    inner = rest.partition(".")[0]
    return inner if top == "ottla" and inner in STANDS_ON else ""


@cache
def imported_modules(tree: ast.Module) -> list[tuple[int, str]]:
    """Yield line and full name of everything imported, also late imports, imports for type checkers only, and those by a text
    (`import_module`).
    """
    found = []
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "import_module" and node.args:
            match node.args[0]:
                case ast.Constant(value=str(text)) if text.startswith("ottla."):
                    found.append((node.lineno, text))
    return found


@cache
def imported_names(tree: ast.Module) -> frozenset[str]:
    """The full names of everything imported."""
    return frozenset(name for _, name in imported_modules(tree))


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` as text; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""
