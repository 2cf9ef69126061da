"""Each block of code on the pages is run by a test, or has the reason why not; and its commands are valid for `ottla`."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from types import ModuleType

import pytest

from ottla.cli.app import App
from ottla.cli.application import parsed
from ottla.cli.command_table import COMMANDS
from tests.rules.blocks import NOT_RUN, PAGES, PLACEHOLDERS, RUN_BY, blocks_of, commands_of
from tests.rules.sources import ROOT

BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def test_each_block_is_run_or_has_a_reason_and_no_row_is_left_over() -> None:
    shown = {block.key for block in BLOCKS}
    rows = {*RUN_BY, *NOT_RUN}
    assert not shown - rows, "name the test that runs these blocks, or why none does, in tests/rules/blocks.py"
    assert not rows - shown, "these blocks are gone"
    assert not RUN_BY.keys() & NOT_RUN.keys()


@pytest.mark.parametrize("test", sorted(set(RUN_BY.values())))
def test_what_runs_a_block_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()


def test_a_path_in_a_reason_is_there() -> None:
    paths = {path for reason in NOT_RUN.values() for path in re.findall(r"tests/[\w/.]*\w", reason.partition("::")[0])}
    assert len(paths) > 20 and not {path for path in paths if not (ROOT / path).exists()}


def test_blocks_of_python_are_python() -> None:
    blocks = [block for block in BLOCKS if block.language == "python"]
    assert len(blocks) > 10
    for block in blocks:
        compile("\n".join(block.lines), block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize(
    ("page", "words"), [(block.page, words) for block in BLOCKS for words in commands_of(block)], ids=str
)
def test_a_command_of_a_page_is_one_that_ottla_takes(page: str, words: list[str]) -> None:
    name, *rest = [PLACEHOLDERS.get(word, word) for word in words]
    module = import_module(COMMANDS[name].module)
    app = getattr(module, "app", None)
    if isinstance(app, App):
        parsed(app, rest)
    else:
        _parse(module, rest)


def _parse(module: ModuleType, words: list[str]) -> None:
    module.parser().parse_args(words)


def test_each_page_is_in_one_of_the_four_parts_of_the_site() -> None:
    listed = re.findall(r"([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert len(set(listed)) == len(listed)
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert pages - set(listed) == set(), "name these pages in the nav of mkdocs.yml"
    generated = {"reference/cli.md", "reference/properties.md", "reference/testing.md", "docker.md", "CHANGELOG.md"}
    assert set(listed) - pages == generated
