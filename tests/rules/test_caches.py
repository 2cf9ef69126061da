"""Functions that remember results do so without a bound in bytes: what clients name is kept by `server/kept.py` instead."""

from __future__ import annotations

import ast

from tests.rules.sources import sources

#: The functions that are decorated, and who chooses their arguments.
CACHED = {
    "protocol/internal_topics/metadata_records.py _frame": "records of Kafka, by number and version",
    "protocol/ranges.py parse": "versions that are written in this tree",
    "server/network/route.py begins_with_throttle": "APIs and their versions",
    "server/authorization/hosts.py read_network": "entries of operators, 32 KB at most each",
}


def test_what_is_remembered_by_arguments_is_not_named_by_clients() -> None:
    found = {
        f"{source.path} {node.name}"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).split("(")[0].rpartition(".")[2] in ("cache", "lru_cache")
    }
    known = {each for each in found if each in CACHED or each.startswith("ottla/")}
    assert found - known == set(), "use Kept of server/kept.py, or add a row that says who chooses the arguments"
    assert set(CACHED) - found == set(), "these rows have no function any more"
