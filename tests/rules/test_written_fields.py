"""A field is written by its own class: no module of storage writes public fields of another module's objects."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.rules.sources import Source, nodes_of, sources

#: The folders whose classes own their fields.
OWNERS = ("storage/log/", "storage/producers/", "storage/segment/", "storage/epochs.py")
#: The folder whose modules work on these objects.
WRITERS = "storage/"

#: Fields that other modules write, and the reason.
WRITTEN_ELSEWHERE: dict[str, tuple[str, ...]] = {
    # An append is the hot path, and a method call takes longer than a store.
    "size": ("storage/segment/segment.py",),
    # `ProducerState` is a row of a snapshot file, too.
    "coordinator_epoch": ("storage/producers/producer_snapshots.py",),
    "current_txn_first_offset": ("storage/producers/producer_snapshots.py",),
    "last_timestamp": ("storage/producers/producer_snapshots.py",),
}


def stored_attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that are assigned anywhere in the tree."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def is_of_self(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def fields_of(source: Source) -> set[str]:
    """Return the public fields of a module's classes."""
    found: set[str] = set()
    for node in nodes_of(source.tree):
        if isinstance(node, ast.ClassDef):
            found |= {each.attr for each in stored_attributes(node) if is_of_self(each)}
            found |= {
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
    return {name for name in found if not name.startswith("_")}


def written_elsewhere() -> dict[str, set[str]]:
    """Return the modules that write fields of other modules' classes, by field."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources():
        for name in fields_of(source):
            owners[name].add(source.path)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources():
        if source.path.startswith(WRITERS):
            for attribute in stored_attributes(source.tree):
                having = owners[attribute.attr]
                if (
                    not is_of_self(attribute)
                    and source.path not in having
                    and any(path.startswith(OWNERS) for path in having)
                ):
                    found[attribute.attr].add(source.path)
    return found


def test_a_field_of_a_log_is_written_by_its_owner() -> None:
    allowed = {name: set(paths) for name, paths in WRITTEN_ELSEWHERE.items()}
    wrong = [
        f"{path} writes {name}: give its class a verb for that"
        for name, paths in sorted(written_elsewhere().items())
        for path in sorted(paths - allowed.get(name, set()))
    ]
    assert not wrong, "\n".join(wrong)


def test_each_exception_is_needed() -> None:
    found = written_elsewhere()
    idle = [f"{name}: {path}" for name, paths in WRITTEN_ELSEWHERE.items() for path in paths if path not in found[name]]
    assert not idle, f"nothing is written there any more: {idle}"


def test_the_isr_of_a_replica_is_written_by_itself() -> None:
    writers = {
        source.path
        for source in sources()
        if source.path.startswith("broker/replication/")
        for attribute in stored_attributes(source.tree)
        if attribute.attr in ("members", "maximal", "proposed", "partition_epoch", "is_under_min", "has_all")
    }
    assert writers == {"broker/replication/isr.py"}
