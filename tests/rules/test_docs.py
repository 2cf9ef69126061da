"""The pages agree with the code where a machine can check it: paths, names, numbers of invariants, generated pages."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.server.config.broker import BROKER_CONFIGS
from tests.rules.generated import PAGES
from tests.rules.parts_of_pages import MADE_PARTS, with_part
from tests.rules.prose import filled
from tests.rules.sources import PARTS, ROOT, nodes_of, short_path, sources, text_of, tree_of

#: Folders that the repository does not have, or that are not its own (built, installed, or cached ones).
NOT_OURS = re.compile(r"build|dist|.*\.egg-info|__pycache__|\.(?!github).*")
INVARIANTS = "docs/dev/INVARIANTS.md"

PATH = re.compile(r"(?<![\w./<-])(?:[\w-]+/)+[\w.-]+\.(?:py|md|toml|sh|csv)\b")
QUOTED_PATH = re.compile(r"[\w./-]+\.(?:py|md|toml|sh|csv|json)|(?:[\w-]+/)+")
QUOTED_NAME = re.compile(r"\.?([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?")
QUOTED_DOTTED = re.compile(r"`(\w+(?:\.\w+)+)`")
#: Names of other projects, and patterns of names.
FOREIGN_NAMES = frozenset({"copy_folio_from_iter_atomic", "sendfile", "KAFKA_A_B", "KAFKA_CFG_A_B", "CFG", "__", "___"})
#: Base classes that add no names for the docs.
EMPTY_BASES = frozenset({"Enum", "Exception", "Generic", "IntEnum", "NamedTuple", "Protocol"})
#: Files that are made at run time, or belong to Python itself.
NOT_KEPT = frozenset({"build/fuzz/TARGET/", "asyncio/runners.py"})

#: A test that a page names with its file.
CITED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CITED = re.compile(r"\b[Ii]nvariants? ((?:\d+(?:-\d+| to \d+)?(?:, | and )?)+)")
RANGE = re.compile(r"(\d+)(?:(?:-| to )(\d+))?")
#: The form in which tests name the invariant that they check.
VIOLATED = re.compile(r"(?:Violation|check|grows|_read)\(\s*\"(\d+)\b|number=\"(\d+)\"")


class Invariant(NamedTuple):
    number: int
    name: str
    checked_by: str


@cache
def files() -> tuple[str, ...]:
    """Paths from the root of everything that is kept."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not NOT_OURS.fullmatch(name)]
        paths = [str((Path(folder) / name).relative_to(ROOT)) for name in names]
        found += dict.fromkeys((*paths, *map(short_path, paths)))
    return tuple(found)


def read(path: str) -> str:
    return text_of(ROOT / path)


def modules() -> Iterator[str]:
    """Paths of the files of code, each once: `broker/broker_node.py` is `ottla/broker/broker_node.py`."""
    return (file for file in files() if file.endswith(".py") and (ROOT / file).resolve() == ROOT / file)


@cache
def ends_of_paths() -> frozenset[str]:
    """Return every suffix of a path after a slash: `partition.py`, `replication/partition.py` and so on."""
    found = set()
    for file in files():
        parts = file.split("/")
        for end in range(1, len(parts) + 1):
            found |= {"/".join(parts[start:end]) for start in range(end)}
    return frozenset(found)


@cache
def known_names() -> frozenset[str]:
    """Return every name in the code of the repository. Words of its texts count; docstrings and comments do not."""
    found: set[str] = set()
    for file in modules():
        found.update(Path(file).with_suffix("").parts)
        for node in nodes_of(tree_of(ROOT / file)):
            if (names := NAMES.get(type(node))) is not None:
                found.update(names(node))
    return frozenset(found)


@cache
def classes() -> dict[str, tuple[set[str], set[str]]]:
    """Return the attributes of the repository's classes, and their bases. Classes of the same name are merged."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for file in modules():
        for node in nodes_of(tree_of(ROOT / file)):
            if isinstance(node, ast.ClassDef):
                members, bases = found.setdefault(node.name, (set(), set()))
                bases |= {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
                members |= {
                    getattr(each, "name", None) or getattr(each, "attr", None) or getattr(each, "id", "")
                    for each in nodes_of(node)
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                    or isinstance(getattr(each, "ctx", None), ast.Store)
                }
    return found


def has(name: str, member: str, above: frozenset[str] = frozenset()) -> bool:
    """Return whether a class has the attribute, or a foreign base class may have it.

    A base with the same name as a class `above` it is another class.
    """
    members, bases = classes()[name]
    above |= {name}
    return member in members or any(
        has(base, member, above) if base in classes().keys() - above else base not in EMPTY_BASES for base in bases
    )


def is_known(name: str) -> bool:
    """Return whether each part of `a.b.c` is a name somewhere, and each part after a class is an attribute of it."""
    parts = name.split(".")
    return set(parts) <= known_names() and all(has(*pair) for pair in pairwise(parts) if pair[0] in classes())


def is_in_its_package(name: str) -> bool:
    """Return whether folders and module exist, if a name begins with a package, such as controller.metadata.loader.Publisher."""
    folder, parts = ROOT / "ottla", name.split(".")
    if parts[0] not in PARTS or name in BROKER_CONFIGS:
        return True
    for part in parts:
        if (folder / f"{part}.py").is_file():
            return True
        folder /= part
    return folder.is_dir()


def imported(node: Any) -> list[str]:
    return [*".".join(alias.name for alias in node.names).split("."), *(getattr(node, "module", "") or "").split(".")]


def words(node: Any) -> list[str]:
    text = node.value
    if not isinstance(text, str) or len(text) >= 160 or text.endswith("."):
        return []
    return [text, *re.findall(r"[A-Za-z_]\w+", text)]


def defined(node: Any) -> tuple[str, ...]:
    return (node.name,)


#: The names in a node, by its type: there are millions of nodes, and most have none.
NAMES: dict[type[ast.AST], Callable[[Any], Iterable[str]]] = {
    ast.Name: lambda node: (node.id,),
    ast.Attribute: lambda node: (node.attr,),
    ast.arg: lambda node: (node.arg,),
    ast.keyword: lambda node: (node.arg or "",),
    ast.FunctionDef: defined,
    ast.AsyncFunctionDef: defined,
    ast.ClassDef: defined,
    ast.Import: imported,
    ast.ImportFrom: imported,
    ast.Constant: words,
}


def quoted(text: str) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return (match[1] for match in re.finditer(r"`([^`\n]+)`", text))


def unknown_names(text: str) -> list[str]:
    whole = known_names()
    found = []
    for quote in quoted(text):
        name = None if QUOTED_PATH.fullmatch(quote) else QUOTED_NAME.fullmatch(quote)
        if name is None or name[1] in whole or name[1] in FOREIGN_NAMES:
            continue
        if not is_known(name[1]):
            found.append(quote)
    return found


def unknown_paths(text: str) -> list[str]:
    paths = PATH.findall(text) + [quote for quote in quoted(text) if QUOTED_PATH.fullmatch(quote)]
    return [path for path in paths if path.rstrip("/") not in ends_of_paths() and path not in NOT_KEPT]


def pages() -> list[str]:
    return [file for file in files() if file.endswith(".md")]


@cache
def invariants() -> dict[int, Invariant]:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", read(INVARIANTS), flags=re.MULTILINE)
    found = {int(number): Invariant(int(number), name, checked_by) for number, name, checked_by in rows}
    assert len(found) == len(rows), "a number is there twice"
    return found


def cited(text: str) -> set[int]:
    found = {int(number) for pair in VIOLATED.findall(text) for number in pair if number}
    for citation in CITED.findall(text):
        for first, last in RANGE.findall(citation):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def test_every_path_and_name_in_the_docs_is_there() -> None:
    wrong = [f"{page}: {each}" for page in pages() for each in unknown_paths(read(page)) + unknown_names(read(page))]
    assert not wrong, "these pages name paths or names that do not exist:\n" + "\n".join(wrong)


def test_every_path_and_quoted_name_in_the_code_is_there() -> None:
    wrong = []
    for source in sources():
        text = "\n".join(source.lines)
        moved = [each for each in QUOTED_DOTTED.findall(text) if not is_in_its_package(each)]
        wrong += [f"{source.path}: {each}" for each in [*unknown_paths(text), *unknown_names(text), *moved]]
    assert not wrong, "these comments name paths or names that do not exist:\n" + "\n".join(wrong)


def test_every_test_that_a_page_cites_is_there() -> None:
    wrong = []
    for page in pages():
        for path, name in CITED_TEST.findall(read(page)):
            if not any(getattr(node, "name", "") == name for node in ast.walk(tree_of(ROOT / path))):
                wrong.append(f"{page}: {path}::{name}")
    assert not wrong, "these pages cite tests that do not exist:\n" + "\n".join(wrong)


def test_every_invariant_that_is_cited_is_listed() -> None:
    wrong = [
        f"{file}: {number}"
        for file in files()
        if file.endswith((".py", ".md"))
        for number in cited(read(file))
        if number not in invariants()
    ]
    assert not wrong, "docs/dev/INVARIANTS.md has no such number:\n" + "\n".join(wrong)
    assert sorted(invariants()) == list(range(len(invariants())))
    assert len({each.name for each in invariants().values()}) == len(invariants())


def test_the_files_that_check_an_invariant_cite_it() -> None:
    wrong = [
        f"{each.number}: {file}"
        for each in invariants().values()
        for file in re.findall(r"`(tests/[^`]+\.py)`", each.checked_by)
        if each.number not in cited(read(file))
    ]
    assert not wrong, "docs/dev/INVARIANTS.md names these files, and they do not cite the number:\n" + "\n".join(wrong)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_made_of_tables_says_what_the_tables_say(path: str) -> None:
    page = "\n".join(filled(PAGES[path]()))
    if os.environ.get("UPDATE") == "1":
        (ROOT / path).write_text(page)
    assert (ROOT / path).read_text() == page, (
        f"the tables have changed: write {path} with `UPDATE=1 .venv/bin/python -m pytest tests/rules/test_docs.py`"
    )


@pytest.mark.parametrize(("path", "heading"), MADE_PARTS)
def test_a_part_of_a_page_that_is_made_of_tables_says_what_the_tables_say(path: str, heading: str) -> None:
    before = (ROOT / path).read_text()
    page = "\n".join(filled(with_part(before, heading, MADE_PARTS[path, heading])))
    if os.environ.get("UPDATE") == "1":
        (ROOT / path).write_text(page)
    assert (ROOT / path).read_text() == page, (
        f"write {path} with `UPDATE=1 .venv/bin/python -m pytest tests/rules/test_docs.py`"
    )
