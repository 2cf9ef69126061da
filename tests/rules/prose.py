"""The lines of a page: prose is wrapped at the width of code; rows of tables, headings and code are unchanged."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

WIDTH = 120
#: Lines that stay as they are: rows of tables, headings, comments, and code that is indented.
KEPT = re.compile(r"\s*\||#|<!--|    ")
ITEM = re.compile(r"(\s*(?:[-*]|\d+\.)\s+)\S")
#: Texts that are not divided: a search for them finds them in one line.
WHOLE = re.compile(r"`[^`]+`|\[[^\]]*\]\([^)]*\)")
FENCE = "```"


def filled(text: str) -> Iterator[str]:
    """The lines of a page whose long paragraphs are filled again."""
    block: list[str] = []
    is_code = False
    for line in text.split("\n"):
        was_code, is_code = is_code, is_code != line.lstrip().startswith(FENCE)
        in_item = bool(block) and ITEM.match(block[0])
        if was_code or is_code or not line.strip() or (KEPT.match(line) and not in_item):
            yield from (*paragraph(block), line)
            block = []
        elif ITEM.match(line):
            yield from paragraph(block)
            block = [line]
        else:
            block.append(line)
    yield from paragraph(block)


def paragraph(block: list[str]) -> list[str]:
    """Return the same lines, unless one of them is too long. The text of an item is indented behind its mark."""
    if all(len(line) <= WIDTH for line in block):
        return block
    margin = " " * (len(block[0]) - len(block[0].lstrip()))
    item = ITEM.match(block[0])
    text = WHOLE.sub(lambda match: match[0].replace(" ", "\0"), " ".join(line.strip() for line in block))
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=margin,
        subsequent_indent=" " * len(item[1]) if item else margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]
