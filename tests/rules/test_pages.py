"""The form of the pages: prose ends at 120 columns, as code does, and each link leads to a file that is there."""

from __future__ import annotations

import ast
import os
import re
from xml.etree import ElementTree

import pytest

from tests.rules.prose import filled
from tests.rules.sources import ROOT
from tests.rules.test_docs import pages, read

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", pages())
def test_prose_ends_at_the_width_of_code(page: str) -> None:
    # Not the cached text: another test may have written the page of new tables.
    expected = "\n".join(filled((ROOT / page).read_text()))
    if os.environ.get("UPDATE") == "1":
        (ROOT / page).write_text(expected)
    assert (ROOT / page).read_text() == expected, (
        f"fill the long lines of {page} with `UPDATE=1 .venv/bin/python -m pytest tests/rules/test_pages.py`"
    )


@pytest.mark.parametrize("page", pages())
def test_no_empty_line_cuts_a_table(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    cut = [
        number
        for number in range(2, len(lines) - 1)
        if lines[number].startswith("|")
        and not lines[number - 1]
        and lines[number - 2].startswith("|")
        and not lines[number + 1].startswith("| ---")
    ]
    assert not cut, f"rows after an empty line are no table: {page}, lines {cut}"


@pytest.mark.parametrize("page", pages())
def test_each_link_leads_to_a_file(page: str) -> None:
    folder = (ROOT / page).parent
    missing = [link for link in LINK.findall(read(page)) if "://" not in link and not (folder / link).exists()]
    assert not missing, f"{page} links to what is not there: {missing}"


@pytest.mark.parametrize("picture", sorted(path.name for path in (ROOT / "docs").rglob("*.svg")))
def test_a_picture_is_plain_text_and_shapes_and_loads_nothing(picture: str) -> None:
    (path,) = (ROOT / "docs").rglob(picture)
    assert "".join(path.read_text().split()).isprintable(), "a control character"
    for element in ElementTree.parse(path).iter():
        name = element.tag.rpartition("}")[2]
        assert name in {"svg", "style", "defs", "clipPath", "rect", "g", "text", "circle"}, name
        assert not any(key.endswith("href") or key.startswith("on") for key in element.attrib), name
        assert name != "style" or not re.search(r"@import|@font-face|url\((?!#)", element.text or "")


def test_a_breakpoint_that_a_page_names_is_in_the_function_that_it_names() -> None:
    text = read("CONTRIBUTING.md")
    ((path, line),) = re.findall(r"\(Pdb\) b (\S+\.py):(\d+)", text)
    (stop,) = re.findall(r"stops in `(\w+)`", text)
    functions = [node for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert int(line) == next(function.body[0].lineno for function in functions if function.name == stop)


def test_a_long_paragraph_is_filled_and_rows_and_code_are_kept() -> None:
    word = "word " * 30
    text = f"| {word}|\n\n{word}\n- {word}`a b`\n  {word}\n\n```\n{word}\n```"
    lines = list(filled(text))
    assert [len(line) for line in lines if line.startswith(("|", "word"))] == [153, 119, 29, 150]
    assert [line[:3] for line in lines[4:7]] == ["- w", "  w", "  w"]
