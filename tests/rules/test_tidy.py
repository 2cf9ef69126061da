"""Sizes, names and habits that a machine can check. The limits are part of our style, and no comment can switch them off."""

from __future__ import annotations

import ast
import re

from tests.rules.sources import ROOT, Source, nodes_of, sources

#: A longer file says more than one thing. Every line counts, also blank ones and comments.
FILE_LINES_MAX = 400
#: A handler translates between a request and one call; longer code has a part with its own subject.
HANDLER_LINES_MAX = 250
HANDLERS = ("broker/api/", "controller/handlers/", "server/handlers/")
FUNCTION_LINES_MAX = 70
#: Names that fit anything.
BANNED_NAMES = re.compile(r"(^|_)(util|utils|helper|helpers|misc|common|manager|managers|stuff)(_|$)")
#: Names of Kafka's classes, because readers who know Kafka look for them.
KAFKAS_NAMES = {
    "group_metadata_manager": "the groups and offsets of one partition of __consumer_offsets",
}
BANNED_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
#: Texts that must not get into the tree: where it was made, and where packages came from.
FOREIGN = re.compile(r"/work/(main|shared)|\bshared/(kafka|peer|suites|design|style)|pypi\.org|files\.pythonhosted")


def functions(source: Source) -> list[tuple[str, int]]:
    """Check names and lengths of bodies. Long signatures and docstrings are allowed."""
    found = []
    for node in nodes_of(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
            found.append((f"{source.path}:{node.lineno} {node.name}", (node.end_lineno or 0) - body[0].lineno + 1))
    return found


def test_files_are_short() -> None:
    sizes = {source.path: len(source.lines) for source in sources()}
    too_long = {path: size for path, size in sizes.items() if size > FILE_LINES_MAX}
    assert not too_long, f"divide these files, FILE_LINES_MAX is {FILE_LINES_MAX}: {too_long}"
    long_handlers = [path for path, size in sizes.items() if path.startswith(HANDLERS) and size > HANDLER_LINES_MAX]
    assert not long_handlers, f"divide these handlers, HANDLER_LINES_MAX is {HANDLER_LINES_MAX}: {long_handlers}"


def test_functions_are_short() -> None:
    too_long = [(name, size) for source in sources() for name, size in functions(source) if size > FUNCTION_LINES_MAX]
    assert not too_long, f"divide these functions, FUNCTION_LINES_MAX is {FUNCTION_LINES_MAX}: {too_long}"


def test_every_file_says_what_it_is_for() -> None:
    silent = [source.path for source in sources() if not ast.get_docstring(source.tree)]
    assert not silent, "these files need a docstring that says what they are for:\n" + "\n".join(silent)


def test_no_file_or_class_is_named_after_nothing() -> None:
    wrong = []
    for source in sources():
        names = source.module.split(".")
        names += [
            re.sub(r"(?<=[a-z])(?=[A-Z])", "_", n.name).lower()
            for n in nodes_of(source.tree)
            if isinstance(n, ast.ClassDef)
        ]
        wrong += [f"{source.path}: {name}" for name in names if BANNED_NAMES.search(name) and name not in KAFKAS_NAMES]
    assert not wrong, "these names fit anything (BANNED_NAMES): name what the file or class is:\n" + "\n".join(wrong)


def test_nothing_is_left_for_later() -> None:
    wrong = [
        f"{source.path}:{number}"
        for source in sources()
        for number, line in enumerate(source.lines, 1)
        if BANNED_WORDS.search(line)
    ]
    assert not wrong, "do it now, or describe it in the documents (BANNED_WORDS):\n" + "\n".join(wrong)


def test_the_tree_stands_alone() -> None:
    """No file points to the machine it was made on."""
    wrong = []
    for pattern in ("*.py", "*.md", "*.toml", "Makefile", "*.sh", "*.json", "*.csv"):
        for file in ROOT.rglob(pattern):
            path = file.relative_to(ROOT)
            if path.parts[0].startswith(".") or path.name == "test_tidy.py" or "build" in path.parts:
                continue
            if FOREIGN.search(file.read_text(errors="replace")):
                wrong.append(str(path))
    assert not wrong, "these files name a place outside of the tree (FOREIGN):\n" + "\n".join(wrong)
