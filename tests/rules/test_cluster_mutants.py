"""The mutants of whole clusters are still valid: each can be called like the function that it replaces, and names what it
breaks.

A mutant that fails with its own exception looks caught but proves nothing, and only a whole run of seeds would show that.
"""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any

import pytest

from tests.rules.test_docs import classes, has
from tests.sim import controller_mutants, group_mutants, mutants
from tests.sim.controller_mutants import BY
from tests.sim.mutants import MUTANTS

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def calls_of(function: Any) -> list[tuple[list[str], dict[str, object]]]:
    """Return the calls with all that a function takes, and with what it cannot do without."""
    taken = inspect.signature(function).parameters.values()
    whole = (
        [each.name for each in taken if each.kind in POSITIONAL],
        {each.name: None for each in taken if each.kind is inspect.Parameter.KEYWORD_ONLY},
    )
    needed = (
        [each.name for each in taken if each.kind in POSITIONAL and each.default is each.empty],
        {name: None for name in whole[1] if inspect.signature(function).parameters[name].default is inspect._empty},
    )
    return [whole, needed]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_called_as_what_it_replaces(name: str) -> None:
    for target, attribute, instead in MUTANTS[name].patches:
        original = vars(target).get(attribute)
        if inspect.isfunction(original):
            for positional, keywords in calls_of(original):
                inspect.signature(instead).bind(*positional, **keywords)
        elif original is not None:
            assert type(original) is type(instead), f"{attribute} is {original!r}, and the mutant {instead!r}"
        else:
            assert not inspect.ismodule(target), f"{target.__name__} has no {attribute}: the mutant changes nothing"


@pytest.mark.timeout(600)  # the first one reads the whole tree, which took 65 s where the machine had other work
@pytest.mark.parametrize("module", [mutants, group_mutants, controller_mutants], ids=lambda module: module.__name__)
def test_a_mutant_reads_fields_that_its_object_has(module: ModuleType) -> None:
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(function, ast.FunctionDef) and function.args.args:
            first = function.args.args[0]
            of = ast.unparse(first.annotation) if first.annotation is not None else ""
            fields = {
                node.attr
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == first.arg
            }
            missing = [field for field in fields - {"_replace"} if of in classes() and not has(of, field)]
            assert not missing, f"{function.name} reads {missing} of {of}, which it does not have"


def test_what_breaks_invariants_by_number_is_a_mutant() -> None:
    assert set(BY) <= set(MUTANTS)
