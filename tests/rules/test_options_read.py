"""Each option of a command, a tool or a daemon is read on some path, or is in its module's table WITHOUT_EFFECT with a reason.

If the parser accepts an option and nothing reads it, the user's request is silently ignored. How options are declared differs:
`argparse` by calls, in Kafka's tools of `cli/shims` and a few programs; commands of `ottla` by the parameters of a function or
the fields of a class; `Options` of daemons by fields. A check of which options go together (`forbid`, `require`) does not count
as reading.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from tests.rules.sources import Source, dotted, nodes_of, package_of, pipeline_sources, sources

#: The functions of `cli/shims/tool.py` that declare options by their names.
DECLARED_BY_NAME = ("flags", "texts", "lists", "numbers")
CHECKS = ("forbid", "require", "usage_error", *DECLARED_BY_NAME)
#: Options that are read by argparse itself, or by the method `parse` of each tool.
OF_ALL_TOOLS = ("help", "version")


def constants(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def declared_by_parser(source: Source) -> dict[str, int]:
    """The names of argparse's options, by `options.NAME`, and the lines of their declarations."""
    tables = {
        target.id: list(
            constants(filter(None, node.value.keys) if isinstance(node.value, ast.Dict) else nodes_of(node.value))
        )
        for node in source.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: dict[str, int] = {}
    for node in nodes_of(source.tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr in DECLARED_BY_NAME:
            for each in node.args:
                if isinstance(each, ast.Starred):  # a table, or a part of one
                    used = [part.id for part in nodes_of(each) if isinstance(part, ast.Name)]
                    names = [name for table in used for name in tables.get(table, ())]
                else:
                    names = list(constants([each]))
                found |= dict.fromkeys(names, node.lineno)
        elif node.func.attr == "add_argument":
            dest = next((list(constants([each.value])) for each in node.keywords if each.arg == "dest"), [])
            names = list(constants(node.args))
            long = [name for name in names if name.startswith("--")]
            found |= dict.fromkeys(dest or (long or names)[:1], node.lineno)
    return {name.lstrip("-").replace("-", "_").replace(".", "_"): line for name, line in found.items()}


@cache
def read_by(tree: ast.Module) -> frozenset[str]:
    """Return the words that may read an option: attributes that are loaded, and texts with names outside of declarations and
    checks.
    """
    skipped: set[int] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in CHECKS or node.func.attr == "add_argument":
                skipped |= {id(each) for each in nodes_of(node)}
        elif isinstance(node, ast.Assign) and "WITHOUT_EFFECT" in map(dotted, node.targets):
            skipped |= {id(each) for each in nodes_of(node)}
    read: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            read.add(node.attr)
        elif isinstance(node, ast.Call) and dotted(node.func) in ("getattr", "given"):
            # getattr(options, f"{which}_host"): the beginning or the end of the name is enough to find it in the code.
            read |= {
                f"*{text}" for each in node.args if isinstance(each, ast.JoinedStr) for text in constants(each.values)
            }
        elif id(node) not in skipped and isinstance(node, ast.Constant) and isinstance(node.value, str):
            read.add(node.value.replace("-", "_").replace(".", "_"))
    return frozenset(read)


def without_effect(source: Source) -> frozenset[str]:
    """The names in the module's table of options without effect, which has the reason of each."""
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and "WITHOUT_EFFECT" in map(dotted, node.targets):
            assert isinstance(node.value, ast.Dict), f"{source.path}: a reason for each"
            return frozenset(name.replace("-", "_") for name in constants(filter(None, node.value.keys)))
    return frozenset()


def imported_beside(source: Source, known: dict[str, Source], found: dict[str, Source] | None = None) -> list[Source]:
    """Return the module itself, and the modules of its folder, of those above and of `local` that it imports, directly or not."""
    found = {} if found is None else found
    if source.module not in found:
        found[source.module] = source
        for node in nodes_of(source.tree):
            if isinstance(node, ast.ImportFrom):
                for module in (node.module or "", *(f"{node.module}.{name.name}" for name in node.names)):
                    if module in known and (
                        source.module.startswith(module.rpartition(".")[0]) or package_of(module) == "local"
                    ):
                        imported_beside(known[module], known, found)
    return list(found.values())


def unread_of_parsers(all_sources: Iterable[Source]) -> set[str]:
    known = {source.module: source for source in all_sources}
    found: set[str] = set()
    for source in known.values():
        declared = declared_by_parser(source)
        if not declared and not without_effect(source):
            continue
        read = frozenset().union(*(read_by(each.tree) for each in imported_beside(source, known)))
        silent = without_effect(source)
        ends = tuple(name[1:] for name in read if name.startswith("*"))
        unread = {
            name: line for name, line in declared.items() if name not in read | silent and not name.endswith(ends)
        }
        found |= {f"{source.path}:{line} {name}" for name, line in unread.items()}
        found |= {f"{source.path}: {name} has an effect" for name in silent & read_by(source.tree)}
        found |= {f"{source.path}: {name} is no option" for name in silent - declared.keys()}
    return {row for row in found if row.rpartition(" ")[2] not in OF_ALL_TOOLS}


def commands(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions whose parameters are options of a command."""
    for node in nodes_of(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
            if any(dotted(each).endswith((".default", ".command", ".named")) for each in decorators):
                yield node


def unread_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    names = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    loaded = {
        node.id
        for statement in function.body
        for node in nodes_of(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return names - loaded


def option_classes(source: Source) -> Iterator[ast.ClassDef]:
    """Return the classes whose fields are options: groups of a command's options, and options of a daemon, a source or a sink."""
    for node in nodes_of(source.tree):
        if isinstance(node, ast.ClassDef):
            made = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
            if any(dotted(each) == "option_group" for each in made) or node.name.endswith("Options"):
                yield node


def fields_of(made: ast.ClassDef) -> set[str]:
    return {
        node.target.id for node in made.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


ALL = (*sources(), *pipeline_sources())


def test_each_option_of_an_argument_parser_is_read_or_has_its_reason() -> None:
    assert unread_of_parsers(ALL) == set()


def test_each_parameter_of_a_command_is_read() -> None:
    unread = {
        f"{source.path}:{function.lineno} {name}"
        for source in ALL
        for function in commands(source)
        for name in unread_parameters(function)
    }
    assert sum(1 for source in ALL for _ in commands(source)) > 80
    assert unread == set()


def test_each_field_of_options_is_read() -> None:
    read = {
        node.attr
        for source in ALL
        for node in nodes_of(source.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    classes = [(source.path, made) for source in ALL for made in option_classes(source)]
    assert len(classes) > 5
    assert {f"{path} {made.name}.{name}" for path, made in classes for name in fields_of(made) - read} == set()


@pytest.mark.parametrize(
    ("code", "unread"),
    [
        ('parser.flags("quiet")', {"quiet"}),
        ('parser.flags("quiet")\nprint(options.quiet)', set()),
        ('parser.flags("quiet")\nif given(options, "quiet"): pass', set()),
        ('parser.texts("a-b", "c.d")\nprint(options.a_b)', {"c_d"}),
        ('parser.add_argument("-x", "--ex-tra", type=int)', {"ex_tra"}),
        ('parser.add_argument("--extra", dest="other")\nprint(options.extra)', {"other"}),
        ('parser.flags("quiet", "loud")\nparser.forbid(options, "quiet", "loud")', {"quiet", "loud"}),
        ('NAMES = ("one", "two")\nparser.texts(*NAMES)\nprint(options.one)', set()),
        ('WITHOUT_EFFECT = {"quiet": "Nothing is printed."}\nparser.flags("quiet")', set()),
        ('WITHOUT_EFFECT = {"quiet": "Nothing is printed."}', {"option"}),
        ('WITHOUT_EFFECT = {"quiet": "Nothing."}\nparser.flags("quiet")\nprint(options.quiet)', {"effect"}),
    ],
)
def test_an_option_that_nothing_reads_is_found(code: str, unread: set[str]) -> None:
    source = Source("ottla/cli/shims/made_up.py", "ottla.cli.shims.made_up", code.splitlines(), ast.parse(code))
    assert {row.rpartition(" ")[2] for row in unread_of_parsers([source])} == unread


def test_a_parameter_that_nothing_reads_is_found() -> None:
    code = "@app.command\ndef show(name, *, quiet=False, loud=False):\n    loud = name\n    print(name)\n"
    source = Source("ottla/cli/commands/made_up.py", "ottla.cli.commands.made_up", code.splitlines(), ast.parse(code))
    assert [unread_parameters(function) for function in commands(source)] == [{"quiet", "loud"}]
