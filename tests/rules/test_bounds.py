"""Each named bound of a queue, a buffer, a wait or a piece of work is named in a test that reaches it, or has its reason here."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.rules.sources import ROOT, dotted, imported_names, nodes_of, sources, text_of, tree_of

PACKAGES = ("protocol", "storage", "server", "controller", "broker")
BOUND = re.compile(r"\w*(?:_MAX|_PER_TURN|_PER_STEP|_A_TURN)|TURN_\w+|(?:POOLED|KEPT_PER)_\w+")
#: These are no bounds of ours, but the largest values of a type, of Kafka's protocol or of its settings.
TYPE_LIMITS = frozenset({
    "INT_MAX", "LONG_MAX", "DOUBLE_MAX", "INT32_MAX", "UVARINT_MAX", "OFFSET_MAX", "_INT_MAX", "_LONG_MAX", "_PRODUCER_ID_MAX", "PORT_MAX",
    "EPOCH_MAX", "COMPRESSION_TYPE_MAX",
})  # fmt: skip
#: Bounds that no test names, with the reason.
UNTESTED: dict[str, str] = {
    "broker/cluster/lifecycle.py RETRY_MS_MAX": "a pause between attempts to register, of which there is one at a time",
    "controller/raft/core.py ROLES_PER_STEP_MAX": "an assertion: no sequence of roles is as long",
    "protocol/records/compression.py _GZIP_PIECE_BYTES_MAX": "the size of a step; the bound of the whole is DECOMPRESSED_BYTES_MAX",
    "protocol/records/record.py _SHORT_MAX": "the size of a table of encoded numbers, not a bound",
    "protocol/records/validate.py _ERRORS_SHOWN_MAX": "how many of the errors the log line shows; RECORD_ERRORS_MAX bounds them",
    "server/loop_watch.py FRAMES_MAX": "how many frames of a stack the log line shows",
    "server/loop_watch.py HELD_MS_MAX": "the smallest time that is logged: tests of it hold the loop until it is",
}


class Bound(NamedTuple):
    path: str
    module: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.path} {self.name}"


def bounds() -> list[Bound]:
    found = []
    for source in sources():
        if source.package in PACKAGES:
            for node in source.tree.body:
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                if isinstance(target, ast.Name) and BOUND.fullmatch(target.id) and target.id not in TYPE_LIMITS:
                    found.append(Bound(source.path, source.module, target.id))
    return found


@cache
def texts_of_tests() -> dict[str, str]:
    files = [file for file in (ROOT / "tests").rglob("*.py") if "rules" not in file.parts]
    return {str(file): text_of(file) for file in files}


@cache
def named_in(file: str) -> frozenset[str]:
    """Return the full names of a test file's imports, of attributes of imported modules, and of what it sets with setattr."""
    tree = tree_of(Path(file))
    imported = imported_names(tree)
    alias = {name.rpartition(".")[2]: name for name in imported}
    alias |= {
        each.asname: f"{node.module}.{each.name}"
        for node in nodes_of(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if each.asname
    }
    found = set(imported)
    for node in nodes_of(tree):
        match node:
            case ast.Attribute():
                module, _, name = dotted(node).rpartition(".")
                found.add(f"{alias.get(module, module)}.{name}")
            case ast.Call(args=[ast.Name(id=module), ast.Constant(value=str(name)), *_]):
                found.add(f"{alias.get(module, module)}.{name}")
            case ast.Constant(value=str(name)) if name.startswith("ottla."):
                found.add(name)
    return frozenset(found)


def importers(bound: Bound) -> set[str]:
    """Return the modules that import it: monkeypatch replaces it there."""
    full = f"{bound.module}.{bound.name}"
    return {source.module for source in sources() if full in imported_names(source.tree)}


@cache
def is_named(bound: Bound) -> bool:
    full = {f"{module}.{bound.name}" for module in {bound.module} | importers(bound)}
    return any(full & named_in(file) for file, text in texts_of_tests().items() if bound.name in text)


def test_each_bound_is_named_by_a_test_or_has_its_reason() -> None:
    unnamed = [bound.key for bound in bounds() if bound.key not in UNTESTED and not is_named(bound)]
    assert not unnamed, (
        "write a test that reaches the bound and imports its value from the module, or add a row with a reason to UNTESTED:\n"
        + "\n".join(unnamed)
    )


def test_no_exception_is_stale() -> None:
    needed = {bound.key for bound in bounds() if not is_named(bound)}
    assert not UNTESTED.keys() - needed, "the bound is gone, or a test names it"
    assert not TYPE_LIMITS - {bound.name for bound in all_limits()}


def all_limits() -> list[Bound]:
    return [
        Bound(source.path, source.module, target.id)
        for source in sources()
        for node in source.tree.body
        if isinstance(target := node.targets[0] if isinstance(node, ast.Assign) else None, ast.Name)
    ]
