"""Functions and modules that cache things without a bound in bytes: names from clients are kept by `server/client_bounds.py`
instead.
"""

from __future__ import annotations

import ast

from tests.rules.sources import nodes_of, sources

#: The decorated functions, and who chooses their arguments.
CACHED = {
    "protocol/internal_topics/metadata_records.py _frame": "records of Kafka, by number and version",
    "protocol/schema.py parse_versions": "versions that are written in this tree",
    "server/network/route.py begins_with_throttle": "APIs and their versions",
    "server/authorization/acl.py read_network": "entries of operators, 32 KB at most each",
}


def test_what_is_remembered_by_arguments_is_not_named_by_clients() -> None:
    found = {
        f"{source.path} {node.name}"
        for source in sources()
        for node in nodes_of(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).split("(")[0].rpartition(".")[2] in ("cache", "lru_cache")
    }
    known = {each for each in found if each in CACHED or each.startswith("ottla/")}
    assert found - known == set(), (
        "use Kept of server/client_bounds.py, or add a row that says who chooses the arguments"
    )
    assert set(CACHED) - found == set(), "these rows have no function any more"


#: Containers of a module that grow, and why they stay bounded.
GROWING = {
    "protocol/compile.py _decoders": "structs and versions of this tree",
    "protocol/compile.py _encoders": "structs and versions of this tree",
    "protocol/schema.py _fields": "structs of this tree",
    "protocol/schema.py _shared_defaults": "structs of this tree",
    "server/log_setup.py _set": "loggers that there are, when an operator alters their levels",
}
GROWS_BY = frozenset({"add", "append", "appendleft", "extend", "insert", "setdefault", "update"})


def is_container(value: ast.expr | None) -> bool:
    match value:
        case ast.Dict() | ast.List() | ast.Set() | ast.DictComp() | ast.ListComp() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in ("dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict")
    return False


def grown_in(tree: ast.Module) -> set[str]:
    """Return the names of containers that something is put into: name[...] = ..., name.add(...)."""
    found = set()
    for node in nodes_of(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=verb)) if verb in GROWS_BY:
                found.add(name)
    return found


def test_no_module_keeps_what_it_learns_in_a_container_without_a_bound() -> None:
    """It would live as long as the process, for all nodes in it. What an object stores ends with its owner, which has a bound."""
    found = {
        f"{source.path} {target.id}"
        for source in sources()
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_container(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id in grown_in(source.tree)
    }
    assert found - set(GROWING) == set(), (
        "use Kept of server/client_bounds.py, or give it to the object whose state it is"
    )
    assert set(GROWING) - found == set(), "these are gone"
