"""Pages that are made of the code's tables are as the code is."""

from __future__ import annotations

import os

import pytest

from tests.rules.generated import PAGES
from tests.rules.sources import ROOT


@pytest.mark.parametrize("path", PAGES)
def test_a_page_made_of_tables_says_what_the_tables_say(path: str) -> None:
    page = PAGES[path]()
    if os.environ.get("UPDATE") == "1":
        (ROOT / path).write_text(page)
    assert (ROOT / path).read_text() == page, "the tables have changed: UPDATE=1 pytest tests/rules/test_docs.py"
